"""The paths of SageMaker's own service, which AWS's libraries call.

A container is asked at `/invocations`; `boto3` asks `/endpoints/NAME/invocations`. Clients that are
given this server as their `endpoint_url` find here what the service would make of our answers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import EngineError, HttpError
from lmi_backend.frontend.event_stream import CONTENT_TYPE, payload_parts, stream_error
from lmi_backend.frontend.failures import Failure, lmi_failure
from lmi_backend.frontend.http_form import Ending
from lmi_backend.frontend.models import UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.lmi import Lmi
    from lmi_backend.frontend.relay import Form
    from lmi_backend.generation import Chunk

_ERROR: Final = 400
_SERVER_ERROR: Final = 500
_MODEL_ERROR: Final = 424
_VARIANT: Final = {"x-amzn-invoked-production-variant": "AllTraffic"}
_ACCEPT: Final = "x-amzn-sagemaker-accept"
_KINDS: Final = {
    401: (403, "UnrecognizedClientException"),
    403: (403, "AccessDeniedException"),
    429: (429, "ThrottlingException"),
    503: (503, "ServiceUnavailable"),
}
"""Status and name of what is not the model's fault; all else is a `ValidationError`."""


class SageMaker:
    """Answers as the service does; `lmi` is the container."""

    def __init__(self, lmi: Lmi) -> None:
        self._lmi = lmi

    async def invoke(self, exchange: Exchange) -> None:
        """Answer with the container's body."""
        model, parsed = await self._lmi.read(exchange)
        await self._lmi.answer(exchange, model, parsed, InvokeForm, sagemaker_failure)

    async def invoke_stream(self, exchange: Exchange) -> None:
        """Answer with events that hold the container's body."""
        # The name that this operation has for it.
        if _ACCEPT in exchange.headers:
            exchange.headers["accept"] = exchange.headers[_ACCEPT]
        model, parsed = await self._lmi.read(exchange)
        await self._lmi.answer(exchange, model, parsed, StreamForm, sagemaker_failure)


class InvokeForm:
    """Makes an answer of what `inner` makes for the container's clients."""

    def __init__(self, inner: Form) -> None:
        self._inner = inner
        self._refusal: list[bytes] = []
        self.status, self.is_over, self.is_failed = 200, False, False
        self.headers: Mapping[str, str] = {}

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`; an error's status is the service's.

        Raises:
            EngineError: the container's events report an error, which AWS's libraries do not read.
        """
        data = self._inner.write(chunks)
        if self._inner.is_failed:
            raise EngineError(data.decode("utf-8", "replace").strip())
        self.is_over = self._inner.is_over
        if self._inner.status < _ERROR:
            self.headers = self._success()
            return self._frame(data)
        self._refusal.append(data)
        if not self.is_over:
            return b""
        text = b"".join(self._refusal).decode("utf-8", "replace")
        self.status, data, self.headers = _model_error(self._inner.status, text)
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
        return payload_parts(data)


def sagemaker_failure(error: LmiError) -> Failure:
    """Return an error as AWS's libraries read it.

    What the container would have answered is a `ModelError`, with the answer in it, but for 503:
    these libraries try again by themselves at 503 only.
    """
    status, data, headers = lmi_failure(error)
    text = str(error)
    is_ours = isinstance(error, HttpError) and not text.startswith("{")
    if not is_ours and status not in _KINDS:
        return _model_error(status, data.decode())
    shown, kind = _KINDS.get(status, (_ERROR, "ValidationError"))
    if isinstance(error, UnknownModelError):
        text = f"Endpoint not found: {text}"
    more = {name: value for name, value in headers.items() if name == "retry-after"}
    return _failure(shown, kind, {"Message": text}, more)


def _model_error(status: int, text: str) -> Failure:
    whose = "server" if status >= _SERVER_ERROR else "client"
    said = {
        "Message": f'Received {whose} error ({status}) from primary with message "{text}"',
        "OriginalStatusCode": status,
        "OriginalMessage": text,
        "LogStreamArn": "",
    }
    return _failure(_MODEL_ERROR, "ModelError", said, {})


def _failure(status: int, kind: str, said: Mapping[str, object], more: dict[str, str]) -> Failure:
    headers = {"content-type": "application/json", "x-amzn-errortype": kind, **more}
    return Failure(status, json.dumps(said).encode(), headers)
