import os
from pathlib import Path

import pytest

from lmi_backend.pool.load_failure import LAST_LINES, LIKELY, LoadFailure, saved

PLACE = "\n\nAt:\n  /a/triton/model.py(58): initialize\n"
HEAD = "Internal: TritonModelException: "


@pytest.mark.parametrize(
    ("reason", "cause", "advice"),
    [
        (f"{HEAD}option.dtype=fp99 is unknown{PLACE}", "option.dtype=fp99 is unknown", "read the"),
        (
            f"{HEAD}the worker exited with status 1{LIKELY}the GPU's memory is full: lower it"
            f"{LAST_LINES}Traceback\n  a\nMemoryError{PLACE}",
            "the worker exited with status 1",
            "the GPU's memory is full: lower it",
        ),
        (
            f"{HEAD}the worker exited with status 1{LAST_LINES}Traceback\nKeyError: 'a'{PLACE}",
            "the worker exited with status 1: KeyError: 'a'",
            "read the",
        ),
        (
            f"load failed for model 'm': version 1 is at UNAVAILABLE state: {HEAD}two\nlines",
            "two lines",
            "read the",
        ),
        (
            f"{HEAD}org/m: the Hub does not know the token; check HF_TOKEN{PLACE}",
            "org/m: the Hub does not know the token",
            "check HF_TOKEN",
        ),
        (f"{HEAD}needs 16 devices; 8 usable{PLACE}", "needs 16 devices; 8 usable", "read the"),
    ],
)
def test_a_reason_becomes_cause_and_advice(reason: str, cause: str, advice: str) -> None:
    failure = LoadFailure.of("m", reason)
    assert failure.cause == cause
    assert failure.advice.startswith(advice)
    assert str(failure).splitlines()[0] == "model m does not start"
    assert len(str(failure).splitlines()) == 3


def test_the_last_lines_of_a_failed_start_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    words = saved("a/b/0", "line\nOSError: gone")
    failure = LoadFailure.of("b", f"{HEAD}vLLM refuses to start: x{LIKELY}do y{words}{PLACE}")
    assert (failure.cause, failure.advice) == ("vLLM refuses to start: x", "do y")
    assert Path(failure.file).read_text() == "line\nOSError: gone\n"
    assert str(failure).endswith(f"\n  lines:  {failure.file}")
    assert failure.file not in failure.brief
    unknown = LoadFailure.of("b", f"{HEAD}it failed{words}{LAST_LINES}KeyError: 1{PLACE}")
    assert unknown.advice == f"read {failure.file}"
    assert unknown.brief == "it failed: KeyError: 1"
    tmp_path.joinpath(f"lmi-failed-starts-{os.getuid()}").chmod(0o777)
    assert saved("b/0", "line") == saved("b/0", "") == ""
