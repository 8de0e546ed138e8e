"""Answers as SageMaker's own service makes them of the container's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.form import EVENTS, LINES, Ending
from lmi_backend.clients.sagemaker.errors import model_error
from lmi_backend.clients.sagemaker.event_stream import CONTENT_TYPE, payload_parts, stream_error
from lmi_backend.errors import HTTP_ERROR, EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.clients.form import Form
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

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
        """See `Form`; an error's status is the service's.

        Raises:
            EngineError: the container's events report an error, which AWS's libraries do not read.
        """
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
