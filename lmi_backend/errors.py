"""What can go wrong, and who is to blame.

    LmiError
    ├── ConfigurationError    the user's properties or environment: the load fails
    │   ├── OptionError       one option, with its name as written and where
    │   └── PlanError         options that are fine alone but cannot be run together or here
    ├── RequestError          this request is wrong; the caller must change it
    ├── QuotedError           the same, in a peer's words
    ├── UnavailableError      nothing wrong with the request; try again
    │   ├── LaterError        it is known when it can
    │   │   ├── LoadingError  the model is not there yet
    │   │   └── LateError     the answer would come later than is promised
    │   ├── EngineDeadError   the engine or its worker died under the request
    │   └── StoppingError     the server is going away
    ├── HttpError             an HTTP answer that is an error; its text is the body
    │   └── UnknownModelError no model has the name that the request says
    ├── EngineError           the engine failed on this request only
    ├── CancelledError        the client went away
    │   ├── MovedError        another front end has the answer
    │   └── StoppedError      the client stopped the request by its id; its answer ends as it is
    ├── DeadlineError         the request outlived its time
    └── WorkerError           talking to a worker process
        ├── WorkerStartError  it never became ready
        └── ConnectionLostError  its socket closed
            └── NotSentError     before any of a message was sent

`code` is the name of the Triton error code a client sees. `retryable` says whether the
same request may succeed later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.printable import cut, listed, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

HTTP_STATUS: Final = {
    "INVALID_ARG": 400, "NOT_FOUND": 404, "ALREADY_EXISTS": 409, "CANCELLED": 499,
    "INTERNAL": 500, "UNSUPPORTED": 501, "UNAVAILABLE": 503,
}  # fmt: skip
"""HTTP status of each `code`."""
HTTP_ERROR: Final = HTTP_STATUS["INVALID_ARG"]
"""The first HTTP status that is an error; below it the request has succeeded."""
HTTP_SERVER_ERROR: Final = HTTP_STATUS["INTERNAL"]
"""The first HTTP status that is the fault of the server."""
LMI_ERROR: Final = 424
"""LMI's HTTP status of any error in a body or a step."""
_CODES: Final = {status: code for code, status in HTTP_STATUS.items()} | {429: "UNAVAILABLE"}
_PROBLEM: Final = 2000
"""Characters of an option's problem."""
_FIELD: Final = 160
"""Characters of the name of a field."""


class LmiError(Exception):
    """Base of every error this package raises on purpose; its text may be shown to a client."""

    code: str = "INTERNAL"
    retryable: bool = False

    @property
    def outcome(self) -> str:
        """What metrics, logs and spans call the end of such a request."""
        return self.code.lower()


class ConfigurationError(LmiError):
    """What the user configured cannot be served.

    Args:
        problems: what is wrong, a line for each; they may quote what the user wrote.
    """

    code = "INVALID_ARG"

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(_line(problem, 2 * _PROBLEM) for problem in problems))


class OptionError(ConfigurationError):
    """One option is wrong.

    Args:
        problem: what is wrong with it, for example "is not a whole number".
        option: the name as the user wrote it.
        value: the value as the user wrote it, for display: `WrittenSetting.redacted`.
        origin: where it was written, for example "serving.properties:7".
        accepted: what would have been right.
    """

    def __init__(
        self, problem: str, *, option: str, origin: str, value: str = "", accepted: str = ""
    ) -> None:
        name = printable(option)
        written = f"{name}={value}" if value else name
        hint = f"; accepted: {accepted}" if accepted else ""
        self.option, self.origin = option, origin
        # What is wrong may quote a part of the value, or of a file that it names.
        self.problem = _line(f"{problem}{hint}", _PROBLEM)
        """What is wrong, without the option and its origin."""
        super().__init__(f"{origin}: {written} {self.problem}")


class PlanError(ConfigurationError):
    """The options cannot be run together, or not on this machine."""


class RequestError(LmiError):
    """A request that can never succeed as it is.

    Args:
        problem: what is wrong, for example "must be at least 1".
        field: the request's field, tensor or parameter.
        value: what was given, shortened for display.
        accepted: what would have been right.
    """

    code = "INVALID_ARG"

    def __init__(
        self, problem: str, *, field: str, value: object = None, accepted: str = ""
    ) -> None:
        text = "" if value is None else f"{printable(_repr(value))} "
        hint = f"; accepted: {accepted}" if accepted else ""
        # The client may have chosen the field, and an engine may quote what it was given. Errors
        # travel, and are made again of what is cut: that must not cut them once more.
        is_short = len(field) <= _FIELD and field.isprintable()
        self.field = field if is_short else printable(field, _FIELD // 2)
        self.detail = cut(f"{text}{problem}{hint}")
        """What is wrong, without the field: its name differs between wire formats."""
        super().__init__(f"{self.field} {self.detail}")


class QuotedError(LmiError):
    """A request that can never succeed, in the very text that its clients compare."""

    code = "INVALID_ARG"

    def __init__(self, message: str) -> None:
        super().__init__(cut(message))


class HttpError(LmiError):
    """An answer that an HTTP server would send with an error's status; its text is the body."""

    is_models = False
    """Whether the process that has the model has answered so, not the front end."""

    def __init__(self, status: int, body: str) -> None:
        # Python 3.10 writes an HTTPStatus by its name.
        self.status = int(status)
        self.code = _CODES.get(status, "INVALID_ARG" if status < HTTP_SERVER_ERROR else "INTERNAL")
        self.retryable = self.code == "UNAVAILABLE"
        super().__init__(body)


class UnknownModelError(HttpError):
    """No model has the name that a request says; the text begins as that of vLLM's server."""

    field = "model"

    def __init__(self, name: str, served: Iterable[str] = ()) -> None:
        text = f"The model `{printable(name)}` does not exist."
        if names := listed(served, ""):
            text += f" Served: {names}."
        super().__init__(HTTP_STATUS["NOT_FOUND"], text)


class UnavailableError(LmiError):
    """Nothing is wrong with the request; the server cannot take it now."""

    code = "UNAVAILABLE"
    retryable = True


class LaterError(UnavailableError):
    """It is known when the server can take it: after so many seconds."""

    def __init__(self, message: str, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(message)


class LoadingError(LaterError):
    """A model is not loaded yet."""


class LateError(LaterError):
    """An answer would come later than is promised."""

    outcome = "late"


class EngineDeadError(UnavailableError):
    """The engine, or the worker it runs in, died while it held the request."""


class StoppingError(UnavailableError):
    """The server is stopping."""


class EngineError(LmiError):
    """The engine failed on this request; others are not affected."""

    def __init__(self, message: str) -> None:
        # An engine may quote what it was given.
        super().__init__(cut(message))


class CancelledError(LmiError):
    """The client cancelled the request or disconnected."""

    code = "CANCELLED"


class MovedError(CancelledError):
    """Another front end has the answer."""


class StoppedError(CancelledError):
    """The client stopped the request by its id, and reads what there is of its answer."""


class DeadlineError(LmiError):
    """The request was not finished in time."""

    code = "UNAVAILABLE"
    retryable = True


class WorkerError(LmiError):
    """A worker process did not do its part."""

    code = "UNAVAILABLE"


class WorkerStartError(WorkerError):
    """A worker exited, or ran out of time, before it was ready."""


class ConnectionLostError(WorkerError):
    """The other end of a worker's socket is gone."""


class NotSentError(ConnectionLostError):
    """The same, before any of a message was sent: another worker may get it."""


def lmi_status(error: LmiError) -> int:
    """Return the HTTP status with which LMI answers an error."""
    return HTTP_STATUS[error.code] if error.code in ("UNAVAILABLE", "NOT_FOUND") else LMI_ERROR


def _line(problem: str, limit: int) -> str:
    """Return a problem in one line: engines' errors have several."""
    return printable(" ".join(filter(None, map(str.strip, problem.splitlines()))), limit)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "a value nested too deeply"
