"""What becomes of a hold inside vLLM that fails, or that nobody wants."""

import logging

import pytest

from lmi_backend.engines.vllm.inside import holds
from lmi_backend.engines.vllm.inside.table import HOLDS
from lmi_backend.errors import OptionError
from lmi_backend.ipc.engine import fast_path_state

NAMES = [hold.name for hold in HOLDS]
MEDIA = next(hold for hold in HOLDS if hold.name == "media")


@pytest.fixture(autouse=True)
def off(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is off in this process, empty at first and forgotten afterwards."""
    off: dict[str, str] = {}
    monkeypatch.setattr(holds, "_off", off)
    return off


def test_every_hold_is_said_whole() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for hold in HOLDS:
        assert hold.name.isidentifier()
        assert hold.names
        for text in (hold.purpose, hold.public_way, hold.cost):
            assert text
            assert text == text.strip().rstrip(".")


def test_one_that_is_let_go_is_warned_of_once_with_all_there_is_to_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert holds.is_held("media")
    holds.let_go("media", "a connector", "None")
    holds.let_go("media", "a connector", "another thing")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for text in ("media", MEDIA.purpose, "a connector", "None", MEDIA.public_way, MEDIA.cost):
        assert text in record.getMessage()
    assert not holds.is_held("media")
    assert holds.states() == dict.fromkeys(NAMES, "") | {"media": "expected a connector; None"}


def test_one_that_an_option_needs_off_is_said_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    holds.leave_out("media", "some_option puts usage into each event")
    holds.leave_out("media", "another")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    reason = "option.some_option puts usage into each event"
    assert record.getMessage() == f"media ({MEDIA.purpose}) is off: {reason}"
    assert ("media", reason, MEDIA.cost) in holds.report()
    # Who turned it off is not the vLLM.
    assert {fast_path_state(why) for why in (reason, holds.CHOSEN)} == {"chosen"}
    holds.let_go("load", "a count", "none")
    assert fast_path_state(holds.states()["load"]) == "public"


def test_what_raises_lets_its_hold_go_and_its_caller_hears_of_it() -> None:
    with pytest.raises(KeyError), holds.held("load", "a count"):
        raise KeyError("counts")
    assert holds.states()["load"] == "expected a count; KeyError: 'counts'"
    with holds.held("waits", "nothing"):
        pass
    assert holds.is_held("waits")


def test_a_probe_tries_what_is_held_and_never_raises() -> None:
    tried: list[str] = []
    assert holds.probe("waits", "a list", lambda: tried.append("waits"))
    assert tried == ["waits"]
    assert not holds.probe("load", "a number", lambda: int("x"))
    assert "ValueError" in holds.states()["load"]
    assert not holds.probe("load", "a number", lambda: tried.append("load"))
    assert tried == ["waits"]


def test_a_probe_that_lets_its_hold_go_itself_has_failed() -> None:
    assert not holds.probe("load", "a number", lambda: holds.let_go("load", "a number", "none"))


def test_an_end_of_the_process_is_no_failure_of_a_probe() -> None:
    def leave() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        holds.probe("load", "a number", leave)
    assert holds.is_held("load")


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("", []),
        ("true", []),
        (" True ", []),
        ("false", NAMES),
        ("FALSE", NAMES),
        ("load", ["load"]),
        ("waits, load,", ["waits", "load"]),
    ],
)
def test_a_user_turns_off_all_or_some(text: str, gone: list[str]) -> None:
    holds.choose(text)
    assert [name for name in NAMES if not holds.is_held(name)] == sorted(gone, key=NAMES.index)
    assert {holds.states()[name] for name in gone} <= {holds.CHOSEN}


@pytest.mark.parametrize("text", ["loads", "load,true", "false,load", "load;waits"])
def test_what_is_no_name_is_refused_with_those_that_are(text: str, off: dict[str, str]) -> None:
    with pytest.raises(OptionError) as refused:
        holds.choose(text)
    assert holds.OPTION in str(refused.value)
    assert all(name in str(refused.value) for name in NAMES)


def test_the_report_has_reason_and_cost_of_what_is_off_and_stays_one_object() -> None:
    before = holds.report()
    assert before == tuple((name, "", "") for name in NAMES)
    assert holds.report() is before
    holds.choose("media")
    after = holds.report()
    assert ("media", holds.CHOSEN, MEDIA.cost) in after
    assert [each for each in after if each[1]] == [("media", holds.CHOSEN, MEDIA.cost)]
    assert holds.report() is after
