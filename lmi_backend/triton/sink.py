"""The end of the road: one request's response sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

from lmi_backend.errors import LmiError, RequestError
from lmi_backend.triton.codec import error_response, response

if TYPE_CHECKING:
    from lmi_backend.generation import Delta
    from lmi_backend.schema.reply import Reply

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonSink:
    """See `Sink`. The final flag travels with the last response, which saves a message."""

    __slots__ = ("_reply", "_request", "_sender")

    def __init__(self, request: Any, sender: Any, reply: Reply) -> None:
        self._request, self._sender, self._reply = request, sender, reply

    def send(self, delta: Delta) -> None:
        """See `Sink`."""
        flags = _FINAL if delta.finish_reason else 0
        self._sender.send(response(self._reply.values(delta)), flags=flags)

    def fail(self, error: LmiError) -> None:
        """See `Sink`. Triton does not end a stream at an error: the flag does."""
        if isinstance(error, RequestError) and error.field == "prompt":
            error = RequestError(error.detail, field=self._reply.prompt_field)
        self._sender.send(error_response(error), flags=_FINAL)

    def is_cancelled(self) -> bool:
        """See `Sink`. The request is asked: the sender's answer costs twice as much."""
        return bool(self._request.is_cancelled())
