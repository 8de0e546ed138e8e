"""Paths of vLLM's server that are not served, and why."""

from __future__ import annotations

from typing import Final

_ONE_WORKER: Final = "one of several workers would get it"
_MANY: Final = "one request would take the places of many; send one for each"
_WEIGHTS: Final = "weights are those of the model's files"
_ELASTIC: Final = "minWorkers and maxWorkers say how many workers there are"
_DEATHS: Final = "a worker that dies is restarted, and its answers resume"
_COHERE: Final = "vLLM serves it with Cohere's library alone; chats are served as OpenAI's"

_REASONS: Final[dict[str, str]] = {
    "/sleep /wake_up /is_sleeping": f"{_ONE_WORKER}; operators unload and load models at /models",
    "/pause /resume /is_paused": f"{_ONE_WORKER}; `lmi-backend drain` lets requests end",
    "/release_kv_cache_memory": _ONE_WORKER,
    "/start_profile /stop_profile": f"{_ONE_WORKER}; use py-spy or nsys on the worker",
    "/abort_requests": "a request stops when its connection is closed",
    "/collective_rpc": "it calls any method of the engine",
    "/load": "/metrics has it: lmi_engine_requests_running and lmi_engine_requests_waiting",
    "/server_info": "`lmi-backend plan` and /api/state tell it, without secrets",
    "/kv_event_sources": "option.kv_events_config says where events are sent",
    "/init_weight_transfer_engine /shutdown_weight_transfer_engine /start_weight_update"
    " /start_draft_weight_update /update_weights /finish_weight_update /update_weight_version"
    " /weight_info /weight_checker /get_world_size": _WEIGHTS,
    "/scale_elastic_ep /is_scaling_elastic_ep": _ELASTIC,
    "/fault_tolerance/apply /fault_tolerance/status": _DEATHS,
    "/v1/chat/completions/batch /generative_scoring /v1/systemone": _MANY,
    "/cohere/v2/chat /cohere/v2/chat/render": _COHERE,
    "/v1/realtime": "no WebSocket is",
}
UNSERVED_PATHS: Final = {path: why for paths, why in _REASONS.items() for path in paths.split()}
"""Path to the reason."""
