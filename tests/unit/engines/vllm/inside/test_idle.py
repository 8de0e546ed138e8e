"""A fast path that is on and takes nothing is turned off by its name."""

import pytest

from lmi_backend.engines.vllm.inside import fast_paths, idle


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setattr(idle, "_used", set())


def test_what_was_not_called_is_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    idle.note_use("prefill")
    idle.turn_off_unused("prefill", "output_hook")
    assert [name for name, why in fast_paths.states().items() if why] == ["output_hook"]
    assert "output_hook (" in caplog.text
    assert "one was made, and it was not called" in caplog.text


def test_one_request_is_enough_before_any_was_taken() -> None:
    passed = idle.PassedBy("new_tokens", "new tokens alone")
    passed.passed({})
    assert fast_paths.is_on("new_tokens")
    passed.passed({"phase": 1, "also": "x" * 999})
    reason = fast_paths.states()["new_tokens"]
    assert "expected new tokens alone; nothing of it in 1 in a row, which also have also" in reason
    assert len(reason) < 400


def test_a_choice_of_some_clients_turns_nothing_off() -> None:
    passed = idle.PassedBy("new_tokens", "new tokens alone")
    passed.took()
    for _ in range(63):
        passed.passed({"phase": 1})
    passed.took()
    for _ in range(63):
        passed.passed({"phase": 1})
    assert fast_paths.is_on("new_tokens")
    passed.passed({"phase": 1})
    assert "phase: 1" in fast_paths.states()["new_tokens"]
