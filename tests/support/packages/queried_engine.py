"""A vLLM of a release that no record knows, and what it says that it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from lmi_backend.options.signature import place_of_answer, query_library, source_of
from tests.support.packages.installed_engine import interpreter, with_version

VERSION: Final = "9.1.0"
ANSWER: Final[dict[str, Any]] = {
    "engine": "vllm",
    "version": VERSION,
    "arguments": {
        "model": ["str", "'m'"],
        "served_model_name": ["str | list[str] | None", "None"],
        "max_logprobs": ["int", "20"],
        "policy": ["'fcfs' | 'priority' | None", "None"],
        "kv_cache_dtype": ["'auto' | 'fp8' | str", "'auto'"],
        "quantization": ["str | None", "None"],
        "enable_prefix_caching": ["bool | None", "None"],
        "pool_config": ["PoolConfig", "PoolConfig()"],
        "speculative_config": ["dict | None", "None"],
        "spec_method": ["'ngram' | 'draft_model' | 'eagle' | 'eagle3' | None", "None"],
        "reasoning_parser": ["str", "''"],
        "reasoning_config": ["ReasoningConfig | None", "None"],
        "device_name": ["'auto' | 'cpu'", "'auto'"],
        "disable_log_stats": ["bool", "False"],
        "hidden": ["int", "0", "no flag"],
        "enable_log_requests": ["bool", "False", "no flag"],
    },
    "objects": {
        "pool_config": {"kind": "'mean' | 'last'", "backend": "Any", "dimensions": "int | None"},
        "speculative_config": {
            "method": "'ngram' | 'draft_model' | 'eagle' | 'eagle3' | None",
            "model": "str | None",
            "num_speculative_tokens": "int",
            "prompt_lookup_max": "int | None",
        },
        "reasoning_config": {"start": "str"},
    },
    "words": {
        "quantization": ["awq", "fp8"],
        "kv_cache_dtype": ["auto", "fp8"],
        "tool_call_parser": ["hermes", "llama3_json", "llama4_json", "kimi_k2"],
        "reasoning_parser": ["qwen3"],
    },
    "server": {
        "lora_modules": ["list[LoRAModulePath] | None", "None"],
        "engine_plugins": ["list[PluginPath] | None", "None"],
        "chat_template": ["str | None", "None"],
        "reasoning_effort_map": ["dict | None", "None"],
        "response_role": ["str", "'assistant'"],
        "enable_auto_tool_choice": ["bool", "False"],
        "enable_log_deltas": ["bool", "True"],
        "max_log_len": ["int | None", "None"],
        "tool_call_parser": ["str | None", "None"],
        "tags": ["list[str] | None", "None"],
        "strict": ["'auto' | 'all'", "'auto'"],
    },
    "listener": ["host", "middleware", "port"],
    "opposites": {
        "disable_prefix_caching": "enable_prefix_caching",
        "disable_auto_tool_choice": "enable_auto_tool_choice",
        "disable_log_deltas": "enable_log_deltas",
    },
    "models": ["LlamaForCausalLM"],
    "ended_models": {"QWenLMHeadModel": "0.23.0"},
}


def unknown_release(folder: Path) -> str:
    """Return an interpreter that has the release, and that writes the answer when it is queried."""
    answer = folder / "answer.json"
    answer.write_text(json.dumps(ANSWER), encoding="utf-8")
    python = Path(interpreter(folder, with_version(folder / "vllm", VERSION)))
    queried = f'#!/bin/sh\n[ "$1" = -m ] && exec cp {answer} "$3"\n'
    python.write_text(python.read_text("utf-8").replace("#!/bin/sh\n", queried), encoding="utf-8")
    return str(python)


def queried_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an interpreter that has the release, and was queried already."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    python = unknown_release(folder)
    source = source_of("vllm")
    assert source
    place = place_of_answer(source, python)
    assert place
    query_library(source.query, python, place)
    return python
