"""What an engine tells of its load, and what comes of what cannot be told."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import fast_paths
from lmi_backend.engines.vllm.processor import LastStats, read_stats

CONFIG = SimpleNamespace(
    cache_config=SimpleNamespace(block_size=16, num_gpu_blocks=10),
    lora_config=SimpleNamespace(max_loras=2),
)


def _engine(state: dict[str, Any], unfinished: Any = 1) -> Any:
    processor = SimpleNamespace(
        get_num_unfinished_requests=lambda: unfinished,
        request_states={"0": SimpleNamespace(**state)},
    )
    return SimpleNamespace(
        output_processor=processor,
        logger_manager=None,
        engine_core=SimpleNamespace(),
        vllm_config=CONFIG,
    )


def _read(engine: Any, num_answered: int = 0) -> Any:
    return read_stats(engine, LastStats(), num_requests=3, num_answered=num_answered)


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})


def test_the_adapter_of_a_request_is_told() -> None:
    stats = _read(_engine({"lora_name": "red", "is_prefilling": False}))
    assert (stats.running, stats.running_adapters) == (1, ("red",))
    assert fast_paths.is_on("load")


def test_answers_of_our_own_are_counted_as_vllms_requests_are() -> None:
    engine = _engine({"lora_name": "red", "is_prefilling": False}, unfinished=2)
    ours = SimpleNamespace(lora_name="blue", is_prefilling=True)
    engine.output_processor.answers = {"1": ours}
    stats = _read(engine)
    assert (stats.running, stats.running_adapters) == (2, ("blue", "red"))


@pytest.mark.parametrize(
    "engine",
    [
        _engine({"lora_name": lambda: "red", "is_prefilling": False}),
        _engine({"lora_name": ("red", None), "is_prefilling": False}),
        _engine({"is_prefilling": False}),
        _engine({"lora_name": None, "is_prefilling": False}, unfinished=(1, None)),
        _engine({"lora_name": None, "is_prefilling": False}, unfinished=0.5),
    ],
)
def test_what_no_heartbeat_can_carry_is_counted_by_the_worker(engine: Any) -> None:
    stats = _read(engine)
    assert (stats.running, stats.running_adapters) == (3, ())
    assert not fast_paths.is_on("load")
