"""What an engine tells of its load, and what comes of what cannot be told."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths, idle
from lmi_backend.engines.vllm.inside.stats import LastStats, read_stats

FIXED = {"kv_block_size": 16, "kv_blocks": 10, "max_adapters": 2}


def _engine(state: dict[str, Any], unfinished: Any = 1) -> Any:
    processor = SimpleNamespace(
        get_num_unfinished_requests=lambda: unfinished,
        request_states={"0": SimpleNamespace(**state)},
    )
    core = SimpleNamespace()
    return SimpleNamespace(output_processor=processor, logger_manager=None, engine_core=core)


def _read(engine: Any, num_answered: int = 0) -> Any:
    return read_stats(engine, LastStats(), FIXED, num_requests=3, num_answered=num_answered)


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setattr(idle, "_used", set())


def test_outputs_that_vllm_hands_to_others_are_seen_with_the_first_answer() -> None:
    engine = _engine({"lora_name": None, "is_prefilling": False})
    _read(engine)
    assert fast_paths.is_on("new_tokens")
    idle.note_use("new_tokens")
    _read(engine, 1)
    assert fast_paths.is_on("new_tokens")
    idle.forget_use("new_tokens")
    assert ("new_tokens", True) in [
        (name, bool(why)) for name, why, _ in _read(engine, 2).fast_paths
    ]


def test_the_adapter_of_a_request_is_told() -> None:
    stats = _read(_engine({"lora_name": "red", "is_prefilling": False}))
    assert (stats.running, stats.running_adapters) == (1, ("red",))
    assert fast_paths.is_on("load")


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
