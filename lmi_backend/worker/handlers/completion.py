"""LMI bodies as the completion requests LMI's current handlers make of them, for formatters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lmi_backend.clients.lmi.reading import MAX_TOKENS
from lmi_backend.clients.openai.paths import COMPLETIONS
from lmi_backend.generation import HttpRequest

_NAMES: Final = {
    "max_new_tokens": "max_tokens",
    "stop_sequences": "stop",
    "ignore_eos_token": "ignore_eos",
    "truncate": "truncate_prompt_tokens",
}
_OURS: Final = frozenset({"do_sample", "details", "return_full_text", "decoder_input_details"})


def completion_request(body: Mapping[str, Any]) -> HttpRequest:
    parameters = body.get("parameters") or {}
    renamed = {_NAMES.get(name, name): parameters[name] for name in parameters.keys() - _OURS}
    if parameters.get("do_sample") is False:
        renamed["temperature"] = 0.0
    completion = {"max_tokens": MAX_TOKENS} | renamed | {"prompt": body["inputs"]}
    if body.get("stream"):
        completion["stream"] = True
    if isinstance(body.get("adapters"), str) and body["adapters"]:
        completion["model"] = body["adapters"]
    return HttpRequest(COMPLETIONS, json.dumps(completion).encode())


class Response(dict[str, Any]):
    """A response as formatters know it from vLLM: members are attributes."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__({name: _wrap(value) for name, value in members.items()})

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return plain values."""
        dumped: dict[str, Any] = json.loads(self.model_dump_json())
        return dumped

    def model_dump_json(self, **_: Any) -> str:
        return json.dumps(self)


def _wrap(value: Any) -> Any:
    if isinstance(value, dict):
        return Response(value)
    return [_wrap(item) for item in value] if isinstance(value, list) else value
