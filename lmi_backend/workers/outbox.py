"""What a worker says, and when: all that is due in one turn of its loop travels in one frame."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lmi_backend.generation import Delta
from lmi_backend.workers import messages as msg
from lmi_backend.workers.frames import encode
from lmi_backend.workers.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.generation import Piece


class _Request:
    """What has come for one request and is not said yet, by answer."""

    __slots__ = ("has_begun", "held")

    def __init__(self) -> None:
        self.held: dict[int, Piece] = {}
        self.has_begun = False


class Outbox:
    """Collects messages and the pieces of answers.

    The first piece of a request and the last of each answer go at once. Others wait for those
    after them as long as the pace says, and for the pieces of all other requests: they leave
    together.

    Args:
        write: gets each frame.
        is_mute: whether to keep the answers; what a group of ranks generates is said by one.
    """

    def __init__(self, write: Callable[[bytes], None], *, is_mute: bool = False) -> None:
        self._write, self._is_mute = write, is_mute
        self._pace = Pace()
        self._gap = 0.0
        self._requests: dict[int, _Request] = {}
        self._due: list[msg.FromWorker] = []
        self._ticked_at = 0.0
        self._is_ticking = False

    def set_pace(self, pace: Pace) -> None:
        """Let pieces wait so long from now on; before, none waits."""
        self._pace = pace

    def open(self, number: int) -> None:
        """Expect pieces of a request."""
        self._requests[number] = _Request()
        self._gap = self._pace.gap(len(self._requests))

    def close(self, number: int) -> None:
        """Forget a request, and what is held of it."""
        self._requests.pop(number, None)
        self._gap = self._pace.gap(len(self._requests))

    def add(self, number: int, piece: Piece) -> None:
        """Take a piece of an answer, to say now or later; if the request was closed, never."""
        request = self._requests.get(number)
        if request is None:
            return
        held = request.held.get(piece.index)
        if held is None:
            held = request.held[piece.index] = piece
        else:
            held.merge(piece)  # type: ignore[arg-type]  # a request has one kind of pieces
        if piece.is_last or not request.has_begun or (not self._gap and self._is_enough(held)):
            request.has_begun = True
            self._release(number, request)
        elif self._gap and not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_at(self._ticked_at + self._gap, self._tick)

    def fail(self, failure: msg.Failure) -> None:
        """Say that a request ended without an answer, after what there is of it."""
        if (request := self._requests.get(failure.id)) is not None:
            self._release(failure.id, request)
            self.close(failure.id)
        if not self._is_mute:
            self.send(failure)

    def send(self, message: msg.FromWorker) -> None:
        """Say something in this turn of the loop."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self.flush)
        self._due.append(message)

    def flush(self) -> None:
        """Write what is due."""
        if self._due:
            self._write(encode(self._due))
            self._due.clear()

    def _tick(self) -> None:
        self._is_ticking = False
        self._ticked_at = asyncio.get_running_loop().time()
        for number, request in self._requests.items():
            if any(map(self._is_enough, request.held.values())):
                self._release(number, request)

    def _is_enough(self, piece: Piece) -> bool:
        """Tell whether a piece has its tokens; of some it is not known how many they have."""
        return not 0 < piece.num_tokens < self._pace.min_tokens

    def _release(self, number: int, request: _Request) -> None:
        if not self._is_mute:
            for piece in request.held.values():
                kind = msg.Output if isinstance(piece, Delta) else msg.Part
                self.send(kind(number, piece))  # type: ignore[arg-type]
        request.held.clear()
