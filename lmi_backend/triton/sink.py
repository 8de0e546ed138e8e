"""The end of the road: one request's response sender."""

from __future__ import annotations

import threading
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

    __slots__ = ("_asking", "_is_ended", "_reply", "_request", "_sender")

    def __init__(self, request: Any, sender: Any, reply: Reply) -> None:
        self._request, self._sender, self._reply = request, sender, reply
        # With the final flag Triton frees what is_cancelled() looks at: to ask at that moment or
        # later ends the whole server with a segmentation fault (seen on 24.10; still so in
        # python_backend's response_sender.cc and pb_cancel.cc of 2026).
        self._asking = threading.Lock()
        self._is_ended = False

    def send(self, delta: Delta) -> None:
        """See `Sink`."""
        values = response(self._reply.values(delta))
        if delta.finish_reason:
            self._send_final(values)
        else:
            self._sender.send(values, flags=0)

    def fail(self, error: LmiError) -> None:
        """See `Sink`. Triton does not end a stream at an error: the flag does."""
        if isinstance(error, RequestError) and error.field == "prompt":
            error = RequestError(error.detail, field=self._reply.prompt_field)
        self._send_final(error_response(error))

    def is_cancelled(self) -> bool:
        """See `Sink`. The request is asked: the sender's answer costs twice as much."""
        with self._asking:
            return not self._is_ended and bool(self._request.is_cancelled())

    def _send_final(self, last: Any) -> None:
        with self._asking:
            self._is_ended = True
        self._sender.send(last, flags=_FINAL)
