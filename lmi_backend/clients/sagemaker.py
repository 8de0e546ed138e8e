"""What AWS's libraries are, which call SageMaker's own service.

A container is called at `/invocations`; `boto3` calls `/endpoints/NAME/invocations`. Clients that
are given this server as their `endpoint_url` find here what the service would make of our answers.
Their streaming clients read Amazon's binary event stream.
"""

from __future__ import annotations

import json
import re
import struct
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from zlib import crc32

from lmi_backend.clients.lmi import lmi_failure
from lmi_backend.clients.openai import HttpForm
from lmi_backend.clients.spec import (
    EVENTS,
    INVOKE,
    LINES,
    TARGET,
    ClientSpec,
    Ending,
    ErrorResponse,
    generating,
    is_object,
)
from lmi_backend.errors import HTTP_ERROR, EngineError, HttpError, UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.clients.spec import Form
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk


_TARGETS: Final = (
    TARGET,
    "x-amzn-sagemaker-inference-component",
    "x-amzn-sagemaker-target-container-hostname",
)
"""Headers that name a model; the first one that is there counts."""
_SESSION: Final = "x-amzn-sagemaker-session-id"
_NEW: Final = "NEW_SESSION"
_EXPLANATIONS: Final = "x-amzn-sagemaker-enable-explanations"

HARMLESS: Final[Mapping[str, str]] = {
    "CustomAttributes": "labels of the client's own",
    "InferenceId": "names the exchange in what is captured of it",
    "TargetVariant": "there is one variant",
}
"""Members of InvokeEndpoint without an effect, and why the answer is still the right one."""
HINTS: Final = ("PrefixAwareId", "SessionId")
"""Members that choose among several workers."""


def target_of(headers: Mapping[str, str]) -> str:
    return next((headers[name] for name in _TARGETS if headers.get(name)), "")


def check_extras(headers: Mapping[str, str], body: Mapping[str, object]) -> None:
    """Refuse sessions and explanations by HttpError; users' own code may serve them."""
    if headers.get(_SESSION) == _NEW:
        raise HttpError(HTTPStatus.BAD_REQUEST, "SessionId NEW_SESSION: sessions are not served")
    if (kind := body.get("requestType")) in (_NEW, "CLOSE"):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"requestType {kind}: sessions are not served")
    # A JMESPath expression, where a literal is in backticks.
    if headers.get(_EXPLANATIONS, "").strip("`").lower() not in ("", "false"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "EnableExplanations: answers are not explained")


_MODEL_ERROR: Final = 424
_KINDS: Final = {
    401: (403, "UnrecognizedClientException"),
    403: (403, "AccessDeniedException"),
    404: (404, "UnknownOperationException"),
    405: (405, "MethodNotAllowedException"),
    429: (429, "ThrottlingException"),
    503: (503, "ServiceUnavailable"),
}
"""Status and name of what is not the model's fault; all else is a `ValidationError`."""
_INVALID: Final = (400, "ValidationError")


def sagemaker_failure(error: LmiError) -> ErrorResponse:
    """Return an error as AWS's libraries read it.

    What the container would have answered is a `ModelError`, with the answer in it, but for 503:
    these libraries try again by themselves at 503 only.
    """
    status, data, headers = lmi_failure(error)
    text = str(error)
    is_ours = isinstance(error, HttpError) and not (error.is_models or is_object(text))
    if not is_ours and status not in (401, 403, 429, 503):
        return model_error(status, data.decode())
    code, kind = _KINDS.get(status, _INVALID)
    if isinstance(error, UnknownModelError):
        (code, kind), text = _INVALID, f"Endpoint not found: {text}"
    more = {name: value for name, value in headers.items() if name == "retry-after"}
    return _failure(code, kind, {"Message": text}, more)


def model_error(status: int, text: str) -> ErrorResponse:
    whose = "server" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "client"
    body = {
        "Message": f'Received {whose} error ({status}) from primary with message "{text}"',
        "OriginalStatusCode": status,
        "OriginalMessage": text,
        "LogStreamArn": "",
    }
    return _failure(_MODEL_ERROR, "ModelError", body, {})


def _failure(
    status: int, kind: str, body: Mapping[str, object], more: dict[str, str]
) -> ErrorResponse:
    headers = {"content-type": "application/json", "x-amzn-errortype": kind, **more}
    return ErrorResponse(status, json.dumps(body).encode(), headers)


CONTENT_TYPE: Final = "application/vnd.amazon.eventstream"
_PART_BYTES: Final = 1 << 20
"""Of one event; botocore reads up to 24 MB."""
_STRING: Final = 7
"""The type of a header's value."""


def payload_parts(data: bytes) -> bytes:
    """Return the events that carry some bytes of an answer, up to 1 MiB each; none for none."""
    headers = {
        ":message-type": "event",
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
    }
    parts = (data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES))
    return b"".join(_message(headers, part) for part in parts)


def stream_error(message: str) -> bytes:
    headers = {
        ":message-type": "exception",
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
    }
    body = {"Message": message, "ErrorCode": "ModelInvocationError"}
    return _message(headers, json.dumps(body).encode())


def _message(headers: Mapping[str, str], payload: bytes) -> bytes:
    head = b"".join(_header(name, value) for name, value in headers.items())
    # Two lengths and their checksum; the message ends with a checksum of all of it.
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    data = prelude + struct.pack("!I", crc32(prelude)) + head + payload
    return data + struct.pack("!I", crc32(data))


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack("!B", len(key)) + key + struct.pack("!BH", _STRING, len(text)) + text


_LINE: Final = re.compile(rb"(?<=\n)(?=[^\r\n])")
_ENDS: Final = {
    EVENTS: re.compile(rb"(?:(?<=\n\n)|(?<=\n\r\n))(?=[^\r\n])"),
    **dict.fromkeys(LINES, _LINE),
}
"""The border between two parts, by content type. Each event or line is a part of its own: clients
read a part as one JSON text (LiteLLM up to 1.108)."""
_VARIANT: Final = {"x-amzn-invoked-production-variant": "AllTraffic"}


class InvokeForm:
    """Makes an answer of what `inner` makes for the container's clients."""

    def __init__(self, inner: Form) -> None:
        self._inner = inner
        self._refusal: list[bytes] = []
        self.status, self.is_over, self.is_failed = 200, False, False
        self.headers: Mapping[str, str] = {}

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`. Raises EngineError: the container's events report an error."""
        data = self._inner.write(chunks)
        if self._inner.is_failed:
            raise EngineError(data.decode("utf-8", "replace").strip())
        self.is_over = self._inner.is_over
        if self._inner.status < HTTP_ERROR:
            self.headers = self._success()
            return self._frame(data)
        self._refusal.append(data)
        if not self.is_over:
            return b""
        text = b"".join(self._refusal).decode("utf-8", "replace")
        self.status, data, self.headers = model_error(self._inner.status, text)
        return data

    def failure(self, error: LmiError) -> Ending:
        """Return the container's bytes without an end: AWS's libraries look at nothing else."""
        return Ending(self._inner.failure(error).data)

    def _success(self) -> dict[str, str]:
        return {**self._inner.headers, **_VARIANT}

    def _frame(self, data: bytes) -> bytes:
        return data


class StreamForm(InvokeForm):
    """The same in Amazon's events."""

    def failure(self, error: LmiError) -> Ending:
        return Ending(stream_error(str(error)), is_end=True)

    def _success(self) -> dict[str, str]:
        inner = self._inner.headers.get("content-type", "application/octet-stream")
        return {"content-type": CONTENT_TYPE, "x-amzn-sagemaker-content-type": inner, **_VARIANT}

    def _frame(self, data: bytes) -> bytes:
        kind = self._inner.headers.get("content-type", "").partition(";")[0].strip()
        parts = _ENDS[kind].split(data) if kind in _ENDS else (data,)
        return b"".join(map(payload_parts, parts))


_ENDPOINT: Final = "/endpoints/{endpoint}/invocations"
_STREAM: Final = f"{_ENDPOINT}-response-stream"

SPEC: Final = ClientSpec(
    name="sagemaker",
    title="SageMaker",
    failure=sagemaker_failure,
    form=HttpForm,
    paths=(
        generating(_ENDPOINT, INVOKE, wrap=InvokeForm),
        generating(_STREAM, INVOKE, wrap=StreamForm, accept="x-amzn-sagemaker-accept"),
    ),
)
