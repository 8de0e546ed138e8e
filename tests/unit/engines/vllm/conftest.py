"""What the tests of the inside of vLLM share."""

import pytest

from tests.unit.engines.vllm.vllm_engine import stand_in


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for vLLM's names."""
    stand_in(monkeypatch)
