"""The option that turns off fast paths inside vLLM."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_backend.engines.vllm import fast_paths
from lmi_backend.engines.vllm.fast_paths import PATHS
from lmi_backend.errors import OptionError
from lmi_backend.options import resolve_options
from lmi_backend.options.classification import status_of
from lmi_backend.options.properties import parse_properties
from lmi_backend.options.table.fast_paths import FAST_PATHS, FASTER, SERVED
from tests.unit.plan.test_planner import plan


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What is off in this process, empty at first and forgotten afterwards."""
    off: dict[str, str] = {}
    monkeypatch.setattr(fast_paths, "_off", off)
    return off


def test_its_names_are_those_of_the_engine() -> None:
    assert [fast_path.name for fast_path in PATHS] == [*FASTER, *SERVED]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", ""),
        ("True", ""),
        ("on", ""),
        ("", ""),
        ("false", ",".join(FASTER)),
        ("0", ",".join(FASTER)),
        ("own_streams", "own_streams"),
        ("own_streams, Waits,own_streams,", "own_streams,waits"),
        ('["media", "load"]', "media,load"),
        (",".join(SERVED), ",".join(SERVED)),
    ],
)
def test_what_it_takes_is_what_the_engine_turns_off(
    text: str, value: str, off: dict[str, str]
) -> None:
    assert FAST_PATHS.kind.parse(text) == value
    fast_paths.choose(value)
    assert list(off) == [*filter(None, value.split(","))]


@pytest.mark.parametrize("text", ["own_stream", "false,waits", "true,waits", "2", "waits;load"])
def test_another_word_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(OptionError, match=r"option.vllm_fast_paths=.*no fast path.*own_streams"):
        resolve_options(parse_properties(f"option.vllm_fast_paths={text}"), {}, folder=Path("/m"))


def test_the_engine_is_built_without_them_and_the_plan_says_so() -> None:
    made = plan("option.rolling_batch=vllm\noption.vllm_fast_paths=waits,media")
    assert made.config.fast_paths == "waits,media"
    assert "fast paths that are off: waits, media (option.vllm_fast_paths)" in made.reasons
    made = plan("option.rolling_batch=vllm\noption.vllm_fast_paths=no")
    assert made.config.fast_paths == ",".join(FASTER)
    some = ", ".join(FASTER)
    assert f"fast paths that are off: {some} (option.vllm_fast_paths)" in made.reasons
    assert plan("option.rolling_batch=vllm\noption.vllm_fast_paths=true").config.fast_paths == ""


def test_its_variable_sets_it_too() -> None:
    options = resolve_options({}, {"OPTION_VLLM_FAST_PATHS": "load"}, folder=Path("/m"))
    assert options[FAST_PATHS] == "load"


def test_it_is_vllms() -> None:
    words = {
        engine: status_of(FAST_PATHS.name, engine, None).word
        for engine in ("vllm", "lmi-dist", "trtllm", "echo")
    }
    assert words == {"vllm": "mapped", "lmi-dist": "mapped", "trtllm": "ignored", "echo": "ignored"}
