import pytest

from lmi_backend.pool.diagnosis import likely_cause
from lmi_backend.pool.load_failure import LAST_LINES, LIKELY, LoadFailure

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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("safetensors_rust.SafetensorError: Error while deserializing header", "download it again"),
        ("HfHubHTTPError: Client error '401 Unauthorized' for url", "HF_TOKEN"),
        ("Model architectures ['Foo'] are not supported for now.", "architecture"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("torch.OutOfMemoryError: CUDA out of memory", "memory is full"),
    ],
)
def test_usual_failures_come_with_advice(words: str, named: str) -> None:
    assert named in likely_cause(f"Traceback\n{words}\n" + "more\n" * 300)
