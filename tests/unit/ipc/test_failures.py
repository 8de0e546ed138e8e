"""An error that crosses to another process is the same error there."""

import pytest

from lmi_backend.errors import (
    CancelledError,
    ConfigurationError,
    DeadlineError,
    EngineDeadError,
    EngineError,
    HttpError,
    LateError,
    LmiError,
    RequestError,
    StoppingError,
    UnavailableError,
)
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.ipc.messages import error_of, failure_of

PLAIN = (
    EngineError, EngineDeadError, StoppingError, UnavailableError, CancelledError, DeadlineError,
)  # fmt: skip
ERRORS = (
    *(kind("why: é") for kind in PLAIN),
    RequestError("is bad", field="top_k", value="x", accepted="a number"),
    HttpError(404, '{"error": "none"}'),
    LateError("too late", 12),
)
"""One of each kind."""


def crossed(error: LmiError) -> LmiError:
    decoder: FrameDecoder[msg.FromWorker] = FrameDecoder(msg.FromWorker, limit=1 << 20)
    (failure,) = decoder.feed(encode([failure_of(7, error)]))
    assert isinstance(failure, msg.Failure)
    assert failure.id == 7
    return error_of(failure)


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_an_error_arrives_as_it_was(error: LmiError) -> None:
    arrived = crossed(error)
    assert type(arrived) is type(error)
    for name in ("code", "retryable", "outcome", "field", "status", "seconds"):
        assert getattr(arrived, name, None) == getattr(error, name, None)
    assert str(arrived) == str(error)


def test_what_has_no_kind_is_the_engines() -> None:
    assert type(crossed(ConfigurationError("c"))) is EngineError
