"""Send the answer of one request through Triton's response sender."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

from lmi_backend.clients.trtllm import TrtllmReply
from lmi_backend.errors import LmiError, RequestError, StoppedError
from lmi_backend.generation import Delta, joined
from lmi_backend.triton.codec import Codec, error_response

if TYPE_CHECKING:
    from lmi_backend.clients.spec import Reply
    from lmi_backend.generation import Chunk

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonSink:
    """Sends one answer to Triton. The final flag travels with the last response, not alone."""

    def __init__(self, request: Any, reply: Reply, codec: Codec, *, is_decoupled: bool) -> None:
        self._request, self._reply, self._codec = request, reply, codec
        self._sender = request.get_response_sender()
        self._is_decoupled = is_decoupled
        self._buffered: defaultdict[int, list[Chunk]] = defaultdict(list)
        """What comes for the one response that Triton lets a model send."""
        # With the final flag Triton frees what is_cancelled() looks at: to ask at that moment or
        # later ends the whole server with a segmentation fault (seen on 24.10; still so in
        # python_backend's response_sender.cc and pb_cancel.cc of 2026).
        self._asking = threading.Lock()
        self._is_ended = False

    @property
    def request_id(self) -> str:
        return str(self._request.request_id())

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        if not self._is_decoupled:
            for chunk in chunks:
                self._buffered[chunk.index].append(chunk)
            if not is_last:
                return
            chunks = self._whole()
        try:
            responses = self._responses(chunks, is_last=is_last)
        except LmiError as error:
            self.fail(error)
            return
        last = responses.pop() if is_last else None
        for response in responses:
            self._sender.send(response, flags=0)
        if last is not None:
            self._send_final(last)

    def _whole(self) -> list[Chunk]:
        return [joined(chunks) for _, chunks in sorted(self._buffered.items())]

    def _responses(self, chunks: list[Chunk], *, is_last: bool) -> list[Any]:
        responses = self._reply.responses(chunks, is_last=is_last)
        if not self._is_decoupled and len(responses) > 1:
            if self._codec.joins:
                return [self._codec.one_response(responses)]
            problem = f"needs {len(responses)} responses, and this model sends one"
            accepted = "one answer, or the model of the same name that streams"
            raise RequestError(problem, field="the request", accepted=accepted)
        return [self._codec.response(values) for values in responses]

    def fail(self, error: LmiError) -> None:
        """End the answer with an error. Triton does not end a stream at an error: the flag does.

        A client that has stopped its request reads an ordinary last response.
        """
        if isinstance(error, StoppedError) and isinstance(self._reply, TrtllmReply):
            buffered = [chunk for chunk in self._whole() if isinstance(chunk, Delta)]
            self.send([*self._reply.remaining(buffered)], is_last=True)
            return
        self._send_final(error_response(self._reply.failure(error)))

    def is_cancelled(self) -> bool:
        """Tell whether the client has left, by the request: its sender takes twice the time."""
        with self._asking:
            return not self._is_ended and bool(self._request.is_cancelled())

    def _send_final(self, last: Any) -> None:
        with self._asking:
            self._is_ended = True
        self._sender.send(last, flags=FINAL)
