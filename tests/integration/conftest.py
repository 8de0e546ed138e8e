"""One real tritonserver with the real vLLM, for the whole session."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serve, write_properties

TINY_LORA = Path(__file__).resolve().parents[2] / ".cache" / "tiny" / "lora"


@pytest.fixture(scope="session")
def served(
    tmp_path_factory: pytest.TempPathFactory, tiny_properties: dict[str, Any]
) -> Iterator[Served]:
    """`tiny` on vLLM with its LoRA adapter, and `echo`, each for all clients."""
    folder = tmp_path_factory.mktemp("models")
    lora = {"option.adapter_roots": TINY_LORA.parent}
    tiny = write_properties(folder / "tiny", tiny_properties | lora)
    (tiny / "adapters").mkdir()
    (tiny / "adapters" / "wrong").symlink_to(TINY_LORA)
    echo = write_properties(
        folder / "echo", {"option.rolling_batch": "echo", "option.token_seconds": 0.01}
    )
    with serve([tiny, echo], folder, "--clients", "trtllm,infer,raw") as server:
        yield server
