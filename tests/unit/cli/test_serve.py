from pathlib import Path
from types import SimpleNamespace

import pytest

from lmi_backend.cli.main import parser
from lmi_backend.cli.serve import drain_seconds
from lmi_backend.engine_config import RequestLimits
from tests.support.run.ports import ANY_PORTS
from tests.support.servers.serving import write_properties
from tests.unit.cli.conftest import Command


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    return write_properties(tmp_path, {"option.rolling_batch": "echo"})


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--model-repository", "my models", "has ' ', and this Triton starts models"),
        ("--model-repository", "$HOME", "has '$', and this Triton starts models"),
        ("--log-file", "nowhere/log", "No such file or directory"),
        ("--log-file", ".", "Is a directory"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    echo: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    option: str,
    value: str,
    problem: str,
) -> None:
    monkeypatch.chdir(echo)
    errors = command("serve", ".", *ANY_PORTS, option, value, status=2).err
    assert f"lmi-backend: {option} {value}: {problem}" in errors


@pytest.mark.parametrize("option", ["--api-keys", "--control-key"])
def test_a_file_that_is_not_there_is_named_at_once(
    echo: Path, command: Command, option: str
) -> None:
    """A front end without its keys would be started again and again."""
    file = echo / "nowhere" / "file"
    errors = command("serve", echo, *ANY_PORTS, option, file, status=2).err
    assert f"lmi-backend: {file} ({option}): No such file" in errors


@pytest.mark.parametrize(
    ("seconds", "words", "drain"), [((), (), 30), ((5, 90), (), 90), ((90,), ("2",), 2)]
)
def test_requests_may_end_in_the_longest_time_of_a_model(
    seconds: tuple[int, ...], words: tuple[str, ...], drain: float
) -> None:
    given = [word for each in words for word in ("--drain-timeout", each)]
    arguments = parser().parse_args(["serve", ".", *given])
    plans = {
        str(each): SimpleNamespace(limits=RequestLimits(drain_seconds=each)) for each in seconds
    }
    plans = plans or {"usual": SimpleNamespace(limits=RequestLimits())}
    assert drain_seconds(arguments, plans) == drain  # type: ignore[arg-type]
