"""How many management requests wait; tests of the adapters say what becomes of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from lmi_backend.errors import EngineError, LmiError, UnavailableError
from lmi_backend.serving.faults import FAULT
from lmi_backend.serving.management import AdapterManagement


class Sink:
    """Notes what a request fails with."""

    error: LmiError | None = None

    def fail(self, error: LmiError) -> None:
        self.error = error


class Adapters:
    """Takes the place of the adapters and of the service; each request fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.refusals: list[LmiError] = []

    def handle(self, _body: Mapping[str, object], _service: object, _sink: Sink) -> None:
        raise self.error

    def refused(self, error: LmiError) -> None:
        self.refusals.append(error)


def management(error: Exception) -> tuple[AdapterManagement, Adapters, list[Any]]:
    """Return one whose threads are not started, and what waits for them."""
    adapters: Any = Adapters(error)
    made = AdapterManagement(adapters, adapters)
    waiting: list[Any] = []
    made.threads.put = waiting.append  # type: ignore[method-assign]
    return made, adapters, waiting


def test_a_hundred_requests_wait_and_no_more() -> None:
    made, _, waiting = management(EngineError("wrong"))
    for _ in range(100):
        made.take({}, Sink())  # type: ignore[arg-type]
    with pytest.raises(UnavailableError):
        made.take({}, Sink())  # type: ignore[arg-type]
    assert len(waiting) == 100
    made._answer(*waiting.pop())
    made.take({}, Sink())  # type: ignore[arg-type]
    assert len(waiting) == 100


@pytest.mark.parametrize(
    ("error", "text"), [(EngineError("wrong"), "wrong"), (ValueError("a secret"), FAULT)]
)
def test_a_failure_is_the_requests_and_a_defect_stays_in_the_log(
    error: Exception, text: str
) -> None:
    made, adapters, waiting = management(error)
    made.take({}, Sink())  # type: ignore[arg-type]
    made._answer(*waiting[0])
    (failure,) = adapters.refusals
    assert waiting[0][1].error is failure
    assert str(failure) == text
