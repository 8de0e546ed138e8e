"""Continue an answer: it is made again, and what the client has is dropped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.responses import EventNames
from lmi_backend.errors import HTTP_ERROR, EngineError
from lmi_backend.generation import reports_error
from lmi_backend.tokenization import ID_BYTES

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import ChunkSink, DeltaSink
    from lmi_backend.generation import Continuation, Delta, HttpChunk

_END: Final = b"\n"
_HEAD: Final = re.compile(rb'"id":"(?:[^"\\]|\\.)*","object":"[^"]*","created":\d+')
"""What names an answer in each event of OpenAI's. An id may be its client's, with any letters."""


class ContinuedSink:
    """Takes all of an answer, and hands on what follows the part that the client has.

    The answer keeps the name that it had, and its time.
    """

    def __init__(self, sink: ChunkSink, continuation: Continuation) -> None:
        self._sink, self.defer, self.drain = sink, sink.defer, sink.drain
        self._left = continuation.num_lines
        match = _HEAD.search(continuation.head)
        self._prefix, self._own = match[0] if match else b"", b""
        self._prefix_names, self._names = EventNames(continuation.names), EventNames()

    def take(self, chunk: HttpChunk) -> None:
        """Take a chunk; raise EngineError if the answer is another than before."""
        if chunk.status >= HTTP_ERROR:
            raise _refusal(chunk.data)
        if self._left:
            data = chunk.data
            self._drop(chunk)
            if self._is_another(is_last=chunk.is_last):
                another = b"it is another on this worker"
                raise _refusal(data if reports_error(data) else another)
            if not chunk.data and not chunk.is_last:
                return
        if self._own:
            chunk.data = chunk.data.replace(self._own, self._prefix)
        chunk.data = self._names.put_back(self._prefix_names, chunk.data)
        self._sink.take(chunk)

    def _drop(self, chunk: HttpChunk) -> None:
        """Take the lines from a chunk that the client has."""
        if self._prefix and not self._own and (match := _HEAD.search(chunk.data)):
            self._own = match[0]
        *lines, chunk.data = chunk.data.split(_END, self._left)
        if self._prefix_names.text:
            self._names.add(b"".join(line + _END for line in lines))
        self._left -= len(lines)
        chunk.num_tokens = 0

    def _is_another(self, *, is_last: bool) -> bool:
        """Tell whether what was dropped cannot have been what the client has."""
        return is_last if self._left else not self._names.covers(self._prefix_names)


def _refusal(why: bytes) -> EngineError:
    return EngineError(f"the answer cannot resume: {why.decode('utf-8', 'replace').strip()}")


class ContinuedDeltas:
    """Takes all deltas of an answer, and hands on those that its client has not."""

    def __init__(self, sink: DeltaSink, continuation: Continuation) -> None:
        self._sink, self.defer = sink, sink.defer
        self._left = len(continuation.ids) // ID_BYTES

    def take(self, delta: Delta) -> None:
        if self._left > 0 and not delta.is_last:
            self._left -= delta.num_tokens
        else:
            self._sink.take(delta)
