"""What a worker sends to its stub: one frame for each turn of its event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from lmi_backend.errors import EngineError, LmiError, RequestError, UnavailableError
from lmi_backend.generation import Chunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.events import append_event, is_event, outputs_of
from lmi_backend.ipc.frames import LARGEST_FRAME, CheckedEncoder, encode
from lmi_backend.ipc.messages import failure_of
from lmi_backend.printable import printable

_log = logging.getLogger(__name__)

_OUTPUTS: Final = (msg.Output, msg.Events)
_MOST_LETTERS: Final = 2000
MOST_UNSENT: Final = 256 << 20
"""Bytes that wait for the stub to read them, above which no more output is added.

A stub that reads nothing is killed after 30 s; tokens of 30 s are a few MiB.
"""


class Outgoing:
    """Collects messages, and writes those of one turn of the event loop together.

    Output that cannot be sent fails its own request: the stub never gets a frame that it cannot
    read.

    Args:
        write: gets each frame.
        unsent: returns the bytes that the stub has not read.
        on_refused: gets the id of a request that was failed here.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        unsent: Callable[[], int],
        on_refused: Callable[[int], None],
    ) -> None:
        self._write, self._unsent, self._on_refused = write, unsent, on_refused
        self.largest_frame = LARGEST_FRAME
        """Bytes of the largest frame: for a larger one the stub would end the worker."""
        self._encoder = CheckedEncoder(msg.FromWorker)
        self._messages: list[msg.FromWorker] = []

    def send(self, message: msg.FromWorker) -> None:
        """Send a message at the end of this turn of the event loop."""
        self._flush_soon()
        self._messages.append(message)

    def send_chunk(self, request_id: int, chunk: Chunk) -> None:
        messages = self._messages
        if not messages:
            self._flush_soon()
        if is_event(chunk):
            try:
                append_event(messages, request_id, chunk)
            except Exception as error:  # noqa: BLE001  it fails at the end of the turn
                _log.debug("a delta of request %s cannot be packed: %s", request_id, error)
            else:
                return
        messages.append(msg.Output(request_id, chunk))

    def refuse(self, request_id: int, error: LmiError) -> None:
        """Send that a request has failed, and let it be aborted."""
        self.send(failure_of(request_id, error))
        self._on_refused(request_id)

    def _flush_soon(self) -> None:
        if not self._messages:
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        if self._messages:
            messages, self._messages = self._messages, []
            self._write_all(messages)

    def _write_all(self, messages: Sequence[msg.FromWorker]) -> None:
        """Write messages in one frame, or in several where one cannot hold them."""
        try:
            frame = self._encoder.encode(messages)
        except ValueError as error:
            self._write_parts(messages, EngineError(f"its output cannot be sent: {error}"))
            return
        if len(frame) > self.largest_frame:
            accepted = f"at most {self.largest_frame} (option.max_output_size)"
            problem = f"has {len(frame)} bytes"
            self._write_parts(
                messages, RequestError(problem, field="the answer", accepted=accepted)
            )
        elif self._unsent() > MOST_UNSENT and any(isinstance(each, _OUTPUTS) for each in messages):
            waits = f"more than {MOST_UNSENT} bytes of the worker's output"
            self._write_parts(messages, UnavailableError(f"the stub does not read {waits}"))
        else:
            self._write(frame)

    def _write_parts(self, messages: Sequence[msg.FromWorker], error: LmiError) -> None:
        """Write messages that cannot share a frame; one that is alone gets the error instead."""
        if len(messages) == 1 and isinstance(messages[0], msg.Events):
            messages = [*outputs_of(messages[0])]
        if len(messages) == 1:
            self._replace(messages[0], error)
            return
        middle = len(messages) // 2
        self._write_all(messages[:middle])
        self._write_all(messages[middle:])

    def _replace(self, message: msg.FromWorker, error: LmiError) -> None:
        """Send something else instead of a message that the stub would not take."""
        match message:
            case msg.Output():
                _log.error("request %s failed: %s", message.id, error)
                self._write_all([failure_of(message.id, error)])
                self._on_refused(message.id)
            case msg.Failure():
                # Its text may quote what is no text, or much of it.
                self._write(encode([msg.Failure(message.id, "engine", str(error))]))
            case msg.StartFailed():
                _log.error("%s", printable(message.message, _MOST_LETTERS))
                self._write(encode([msg.StartFailed(f"its reason is in the log: {error}")]))
            case msg.Heartbeat():
                _log.error("the engine's stats cannot be sent: %s", error)
                self._write(encode([msg.Heartbeat(EngineStats())]))
            case _:
                _log.error("%s cannot be sent: %s", type(message).__name__, error)
