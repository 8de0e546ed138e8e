"""One real tritonserver with the real vLLM, for the whole session."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.places import TINY
from tests.support.serving import Served, serve, write_properties

TINY_LORA = TINY / "lora"


@pytest.fixture(scope="session")
def served(
    tmp_path_factory: pytest.TempPathFactory, tiny_properties: dict[str, Any]
) -> Iterator[Served]:
    """`tiny` on vLLM with its LoRA adapter, and `echo`, each for all clients."""
    folder = tmp_path_factory.mktemp("models")
    more: dict[str, Any] = {
        "option.log_requests": "true",
        "option.adapter_roots": TINY_LORA.parent,
        "option.enable_auto_tool_choice": "true",
        "option.tool_call_parser": "hermes",
        # The model is so small that it writes white space without end where a grammar lets it.
        "option.structured_outputs_config": json.dumps(
            {"backend": "xgrammar", "disable_any_whitespace": True}
        ),
    }
    tiny = write_properties(folder / "tiny", tiny_properties | more)
    (tiny / "adapters").mkdir()
    (tiny / "adapters" / "wrong").symlink_to(TINY_LORA)
    echo = write_properties(
        folder / "echo", {"option.rolling_batch": "echo", "option.token_seconds": 0.01}
    )
    options = ("--clients", "trtllm,infer,raw", "--control-key", str(folder / "control.key"))
    with serve([tiny, echo], folder, *options) as server:
        yield server
