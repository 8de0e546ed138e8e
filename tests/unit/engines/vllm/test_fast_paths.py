"""What becomes of a fast path into vLLM that fails, or that nobody wants."""

import logging

import pytest

from lmi_backend.engines.vllm import fast_paths
from lmi_backend.engines.vllm.fast_paths import COSTS, FASTER
from lmi_backend.ipc.engine import fast_path_state
from lmi_backend.options.releases import newest_run


@pytest.fixture(autouse=True)
def off(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is off in this process, empty at first and forgotten afterwards."""
    off: dict[str, str] = {}
    monkeypatch.setattr(fast_paths, "_off", off)
    return off


def test_one_that_is_turned_off_is_warned_of_once_with_all_there_is_to_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert fast_paths.is_on("media")
    fast_paths.turn_off("media", "a connector", "None")
    fast_paths.turn_off("media", "a connector", "another thing")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for text in ("media", "a connector", "None", COSTS["media"]):
        assert text in record.getMessage()
    assert not fast_paths.is_on("media")
    assert fast_paths.reason_of("media") == "expected a connector; None"


def test_one_that_an_option_needs_off_is_said_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    fast_paths.leave_out("media", "some_option puts usage into each event")
    fast_paths.leave_out("media", "another")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    reason = "option.some_option puts usage into each event"
    assert record.getMessage() == f"media is off: {reason}"
    assert ("media", reason, COSTS["media"]) in fast_paths.report()
    # Who turned it off is not the vLLM.
    assert {fast_path_state(why) for why in (reason, fast_paths.CHOSEN)} == {"chosen"}
    fast_paths.turn_off("load", "a count", "none")
    assert fast_path_state(fast_paths.reason_of("load")) == "public"


def test_some_are_left_out_for_a_while_and_nobody_hears_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fast_paths.leave_out("media", "x")
    with fast_paths.without("load"), fast_paths.without("media"):
        assert not fast_paths.is_on("load")
        assert fast_paths.is_on("forced_tokens")
    assert fast_paths.is_on("load")
    assert not fast_paths.is_on("media")
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_probe_tries_what_is_on_and_never_raises() -> None:
    tried: list[str] = []
    assert fast_paths.probe("forced_tokens", "a list", lambda: tried.append("forced_tokens"))
    assert tried == ["forced_tokens"]
    assert not fast_paths.probe("load", "a number", lambda: int("x"))
    assert "ValueError" in fast_paths.reason_of("load")
    assert not fast_paths.probe("load", "a number", lambda: tried.append("load"))
    assert tried == ["forced_tokens"]


def test_a_probe_that_turns_its_path_off_itself_has_failed() -> None:
    assert not fast_paths.probe(
        "load", "a number", lambda: fast_paths.turn_off("load", "a number", "none")
    )


def test_an_end_of_the_process_is_no_failure_of_a_probe() -> None:
    def leave() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        fast_paths.probe("load", "a number", leave)
    assert fast_paths.is_on("load")


def test_a_user_turns_off_what_makes_answers_cheaper() -> None:
    fast_paths.choose(True)
    assert fast_paths.report() == tuple((name, "", "") for name in COSTS)
    fast_paths.choose(False)
    chosen = [(name, fast_paths.CHOSEN, cost) for name, cost in FASTER.items()]
    assert [each for each in fast_paths.report() if each[1]] == chosen


def test_a_newer_release_is_logged_with_how_much_of_this_fits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    fast_paths.say_if_newer(newest_run("vllm"))
    assert caplog.messages == []
    fast_paths.leave_out("media", "x")
    fast_paths.say_if_newer("9.1.0+cpu")
    assert caplog.messages == [
        f"vLLM 9.1.0 is newer than {newest_run('vllm')}, the newest that was run: "
        f"{len(COSTS) - 1} of {len(COSTS)} fast paths hold"
    ]
