"""The targets by name, and which of them are measured where none is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmark import targets
from benchmark.http_client import LINE, completion_body, lmi_body, triton_body
from benchmark.nvidia_dynamo import dynamo
from benchmark.servers import PROMPT
from benchmark.targets import Target

_GENERATE = "/v2/models/bench/generate_stream"
_EACH: dict[str, Any] = {"option.stream_flush_ms": 0}
_TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}
_ASKED: Mapping[str, Mapping[str, Any]] = {
    "log probabilities": {"logprobs": True, "top_logprobs": 2},
    "tools": {
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": _TOOL}}]
    },
    "structure": {"structured_outputs": {"regex": "[a-z ]{500,}"}},
}
"""What chats ask that are not plain; all have the answer's length."""
_TOOLS: dict[str, Any] = {
    "option.enable_auto_tool_choice": "true",
    "option.tool_call_parser": "hermes",
}
_TOOL_WORDS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
VLLM_BACKEND = "Triton's vLLM backend"
TARGETS: dict[str, Target] = {
    "raw engine": targets.raw_engine,
    "lmi-backend, chat": targets.lmi_chat({}),
    "lmi-backend, chat, each token": targets.lmi_chat(_EACH),
    "lmi-backend, completions, each token": targets.lmi_port(
        "/v1/completions", completion_body(PROMPT, "bench"), _EACH
    ),
    "lmi-backend, LMI, each token": targets.lmi_port("/invocations", lmi_body(PROMPT), _EACH, LINE),
    "lmi-backend, Triton's form, each token": targets.lmi_port(
        _GENERATE, triton_body(PROMPT), _EACH
    ),
    "lmi-backend, chat, 8 tokens": targets.lmi_chat({"option.stream_interval": 8}),
    "lmi-backend, gRPC": targets.lmi_grpc({}),
    "lmi-backend, gRPC, each token": targets.lmi_grpc(_EACH),
    "lmi-backend, HTTP": targets.lmi_http({}),
    "lmi-backend, HTTP, each token": targets.lmi_http(_EACH),
    "lmi-backend, whole answers": targets.lmi_grpc({}, stream=False),
    **{
        f"lmi-backend, chat with {name}, each token": targets.lmi_chat(_EACH | _TOOLS, asked)
        for name, asked in _ASKED.items()
    },
    "vLLM's server": targets.vllm_server(),
    "vLLM's server, 8 tokens": targets.vllm_server("--stream-interval", "8"),
    "vLLM's Rust front end": targets.vllm_rust_server(),
    "vLLM's Rust front end, 8 tokens": targets.vllm_rust_server("--stream-interval", "8"),
    "Dynamo": dynamo,
    **{
        f"vLLM's server, chat with {name}": targets.vllm_server(*_TOOL_WORDS, asked=asked)
        for name, asked in _ASKED.items()
    },
    "lmi-backend, embeddings": targets.lmi_embeddings(),
    "vLLM's server, embeddings": targets.vllm_embeddings(),
    VLLM_BACKEND: targets.vllm_backend,
    "Triton, constant responses": targets.constant_responses,
    "echo": targets.echo({}),
    # At a pace at which each token can have a response of its own.
    "echo, each token": targets.echo({"option.stream_flush_ms": 0, "option.token_seconds": 0.004}),
}
"""In the order of a table. Where a name says nothing of it, tokens share events as by default."""
_ONLY_NAMED = ("echo", " with ", "embeddings", VLLM_BACKEND)
DEFAULT = tuple(name for name in TARGETS if not any(word in name for word in _ONLY_NAMED))
QUICK = (
    "lmi-backend, chat, each token",
    "lmi-backend, chat, 8 tokens",
    "vLLM's server",
    "vLLM's server, 8 tokens",
    "vLLM's Rust front end",
    "vLLM's Rust front end, 8 tokens",
)
