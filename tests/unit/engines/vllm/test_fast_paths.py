"""What becomes of a fast path into vLLM that fails, or that nobody wants."""

import logging

import pytest

from lmi_backend.engines.vllm import fast_paths
from lmi_backend.engines.vllm.fast_paths import PATHS
from lmi_backend.errors import OptionError
from lmi_backend.ipc.engine import fast_path_state

NAMES = [fast_path.name for fast_path in PATHS]
MEDIA = next(fast_path for fast_path in PATHS if fast_path.name == "media")


@pytest.fixture(autouse=True)
def off(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is off in this process, empty at first and forgotten afterwards."""
    off: dict[str, str] = {}
    monkeypatch.setattr(fast_paths, "_off", off)
    return off


def test_every_path_is_described_whole() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for fast_path in PATHS:
        assert fast_path.name.isidentifier()
        for text in (fast_path.purpose, fast_path.public_way, fast_path.cost):
            assert text
            assert text == text.strip().rstrip(".")


def test_one_that_is_turned_off_is_warned_of_once_with_all_there_is_to_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert fast_paths.is_on("media")
    fast_paths.turn_off("media", "a connector", "None")
    fast_paths.turn_off("media", "a connector", "another thing")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for text in ("media", MEDIA.purpose, "a connector", "None", MEDIA.public_way, MEDIA.cost):
        assert text in record.getMessage()
    assert not fast_paths.is_on("media")
    assert fast_paths.states() == dict.fromkeys(NAMES, "") | {"media": "expected a connector; None"}


def test_one_that_an_option_needs_off_is_said_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    fast_paths.leave_out("media", "some_option puts usage into each event")
    fast_paths.leave_out("media", "another")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    reason = "option.some_option puts usage into each event"
    assert record.getMessage() == f"media ({MEDIA.purpose}) is off: {reason}"
    assert ("media", reason, MEDIA.cost) in fast_paths.report()
    # Who turned it off is not the vLLM.
    assert {fast_path_state(why) for why in (reason, fast_paths.CHOSEN)} == {"chosen"}
    fast_paths.turn_off("load", "a count", "none")
    assert fast_path_state(fast_paths.states()["load"]) == "public"


def test_what_raises_turns_its_path_off_and_its_caller_hears_of_it() -> None:
    with pytest.raises(KeyError), fast_paths.watched("load", "a count"):
        raise KeyError("counts")
    assert fast_paths.states()["load"] == "expected a count; KeyError: 'counts'"
    with fast_paths.watched("waits", "nothing"):
        pass
    assert fast_paths.is_on("waits")


def test_some_are_left_out_for_a_while_and_nobody_hears_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fast_paths.choose("media")
    with fast_paths.without(["load", "media"]):
        assert not fast_paths.is_on("load")
        assert fast_paths.is_on("waits")
    assert fast_paths.is_on("load")
    assert not fast_paths.is_on("media")
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_probe_tries_what_is_on_and_never_raises() -> None:
    tried: list[str] = []
    assert fast_paths.probe("waits", "a list", lambda: tried.append("waits"))
    assert tried == ["waits"]
    assert not fast_paths.probe("load", "a number", lambda: int("x"))
    assert "ValueError" in fast_paths.states()["load"]
    assert not fast_paths.probe("load", "a number", lambda: tried.append("load"))
    assert tried == ["waits"]


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


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("", []),
        ("load", ["load"]),
        ("waits,load", ["waits", "load"]),
    ],
)
def test_a_user_turns_off_some(text: str, gone: list[str]) -> None:
    fast_paths.choose(text)
    assert [name for name in NAMES if not fast_paths.is_on(name)] == sorted(gone, key=NAMES.index)
    assert {fast_paths.states()[name] for name in gone} <= {fast_paths.CHOSEN}


@pytest.mark.parametrize("text", ["loads", "load,true", "false", "load;waits"])
def test_what_is_no_name_is_refused_with_those_that_are(text: str, off: dict[str, str]) -> None:
    with pytest.raises(OptionError) as refused:
        fast_paths.choose(text)
    assert fast_paths.OPTION in str(refused.value)
    assert all(name in str(refused.value) for name in NAMES)


def test_the_report_has_reason_and_cost_of_what_is_off_and_stays_one_object() -> None:
    before = fast_paths.report()
    assert before == tuple((name, "", "") for name in NAMES)
    assert fast_paths.report() is before
    fast_paths.choose("media")
    after = fast_paths.report()
    assert ("media", fast_paths.CHOSEN, MEDIA.cost) in after
    assert [each for each in after if each[1]] == [("media", fast_paths.CHOSEN, MEDIA.cost)]
    assert fast_paths.report() is after
