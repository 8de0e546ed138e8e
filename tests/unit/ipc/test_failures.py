"""An error that crosses to another process is the same error there."""

import pytest

from lmi_backend.errors import (
    CancelledError,
    ConfigurationError,
    DeadlineError,
    EngineDeadError,
    EngineError,
    HttpError,
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


def crossed(error: LmiError) -> LmiError:
    decoder: FrameDecoder[msg.FromWorker] = FrameDecoder(msg.FromWorker, limit=1 << 20)
    (failure,) = decoder.feed(encode([failure_of(7, error)]))
    assert isinstance(failure, msg.Failure)
    assert failure.id == 7
    return error_of(failure)


@pytest.mark.parametrize("kind", PLAIN)
def test_kind_and_text_arrive(kind: type[LmiError]) -> None:
    error = crossed(kind("why: é"))
    assert type(error) is kind
    assert (str(error), error.code, error.retryable) == ("why: é", kind.code, kind.retryable)


def test_a_refused_field_keeps_its_name() -> None:
    error = RequestError("is bad", field="top_k", value="x", accepted="a number")
    arrived = crossed(error)
    assert isinstance(arrived, RequestError)
    assert (arrived.field, str(arrived)) == ("top_k", str(error))


def test_an_http_error_keeps_its_status_and_body() -> None:
    arrived = crossed(HttpError(404, '{"error": "none"}'))
    assert isinstance(arrived, HttpError)
    assert (arrived.status, str(arrived), arrived.code) == (404, '{"error": "none"}', "NOT_FOUND")


def test_what_has_no_kind_is_the_engines() -> None:
    assert type(crossed(ConfigurationError("c"))) is EngineError
