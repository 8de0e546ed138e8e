"""What has come of a model's answer, on its way from the model to the client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from lmi_backend.endpoint.backlog import STILL_SECONDS, UNREAD, UNREAD_BYTES
from lmi_backend.errors import EngineError, UnavailableError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import chunk_of, delta_of
from lmi_backend.ipc.kept_chunks import chunks_before, chunks_in
from lmi_backend.ipc.rejoining import Cancelled, Deleted, Forget, Named
from lmi_backend.shares import Shares
from lmi_backend.token_ids import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.errors import LmiError
    from lmi_backend.frontend.connection import ModelConnection
    from lmi_backend.generation import Chunk, Continuation, Delta
    from lmi_backend.ipc.rejoining import Before, Rejoined
    from lmi_backend.resume.progress import Progress

    _Submit = msg.Submit | msg.SubmitHttp

ALL_UNREAD_BYTES: Final = 512 << 20
_NOTED_BYTES: Final = 1 << 20  # unread, from which on it is noted when a client takes something


class Forward(Protocol):
    """Takes to a client at once what comes of the middle of an answer."""

    def take(self, chunk: Chunk) -> bool:
        """Take a chunk, or return False: `Answer.read` is to return it."""
        ...

    def pass_event(self, data: bytes, num_tokens: int, now: float) -> bool:
        """Take an event, whose data is all that it says, or return False: `take` may take it.

        Args:
            now: time of the monotonic clock.
        """
        ...

    def pass_delta(self, delta: Delta, now: float) -> bool:
        """Pass the event of a generated answer; as `pass_event` else."""
        ...


class Kept(Protocol):
    """Keeps what comes of an answer for its client."""

    name: str
    """By which the model keeps it too."""

    def moved(self) -> None:
        """Note that another front end has the answer."""
        ...

    def before(self, where: Continuation) -> Before | None:
        """Return what its client has got, where the model resumes it; None if that is not known."""
        ...


class Unread:
    """What all answers of a process have that their clients have not read.

    Args:
        limit: bytes of all. Beyond it the largest answer fails of the key that holds most.
    """

    def __init__(self, limit: int = ALL_UNREAD_BYTES) -> None:
        self._limit = limit
        self.answers: Shares[Answer] = Shares()

    def add(self, answer: Answer, size: int) -> None:
        """Note that an answer has so many bytes more."""
        self.answers.add(answer, size, answer.owner)
        for each in self.answers.excess(self._limit):
            each.end_unread()


class Answer:
    """What has come of one request's answer and is not yet taken."""

    __slots__ = (
        "_before", "_chunks", "_connection", "_error", "_kept", "_seen", "_taken_at", "_unread",
        "_waiting", "awaited", "forward", "is_over", "owner", "progress", "request_id", "unsent",
    )  # fmt: skip

    def __init__(
        self,
        connection: ModelConnection,
        request_id: int,
        progress: Progress | None,
        owner: str = "",
    ) -> None:
        self._connection, self.request_id = connection, request_id
        self.progress = progress
        """What lets it resume when the model is gone and back; None if it cannot."""
        self._chunks: list[Chunk] = []
        self.awaited: Progress | None = None
        """What becomes its progress when the chunks of another front end have come."""
        self._before: list[list[Chunk]] = []
        """These chunks, which are read first."""
        self._unread = connection.unread
        self.owner = owner
        self.unsent: Callable[[], int] = int
        """Returns the bytes of what was read that the client has not taken."""
        self._seen, self._taken_at = -1, 0.0
        """These bytes, and when something was taken last, as far as was looked."""
        self._kept: Kept | None = None
        """How its client may get it again."""
        self._error: LmiError | None = None
        self.is_over = False
        """Whether it is finished, or its client has left."""
        self._waiting: asyncio.Future[None] | None = None
        self.forward: Forward | None = None
        """What takes chunks to the client at once, while nothing waits to be read."""

    def pass_event(self, data: bytes, ids: bytes, now: float) -> None:
        """Take an event from the connection: what `put` does of its chunk, without making one."""
        forward = self.forward if self._waiting is not None else None
        if forward is None or not forward.pass_event(data, len(ids) // ID_BYTES, now):
            self.put(chunk_of(msg.Events, data, ids))
        elif self.progress is not None and self.progress.pass_event(data, ids):
            self._connection.acknowledged(self)

    def pass_delta(self, data: bytes, ids: bytes, now: float) -> None:
        """Do the same with an event of `Deltas`.

        Raises:
            msgspec.DecodeError: the data are none.
        """
        delta = delta_of(data, ids)
        forward = self.forward if self._waiting is not None else None
        if forward is None or not forward.pass_delta(delta, now):
            self.put(delta)
        elif self.progress is not None and self.progress.pass_event(data, ids):
            self._connection.acknowledged(self)

    def put(self, chunk: Chunk) -> None:
        """Take a chunk from the connection."""
        if chunk.is_last:
            self.progress = None
        elif self.progress is not None and self.progress.add(chunk):
            self._connection.acknowledged(self)
        forward = self.forward if self._waiting is not None else None
        if forward is None or not forward.take(chunk):
            self._keep(chunk)

    def rejoin(self, rejoined: Rejoined) -> None:
        """Take the chunks that another front end had."""
        try:
            before = chunks_before(rejoined.before) if rejoined.before else ()
            self._before = [*before, *chunks_in(rejoined.blocks)]
        except Exception as error:  # noqa: BLE001  all answers come on this connection
            self.fail(EngineError(f"what is kept of the answer cannot be read: {error}"))
            self.abort()
            return
        self.progress, self.awaited = self.awaited, None
        for chunks in self._before:
            for chunk in chunks:
                if chunk.is_last:
                    self.progress = None
                elif self.progress is not None:
                    self.progress.add(chunk)
        self._wake()

    def _keep(self, chunk: Chunk) -> None:
        size = self._unread.answers.of(self)
        if size > _NOTED_BYTES and self._stands_still() and size > UNREAD_BYTES:
            self.end_unread()
            return
        self._chunks.append(chunk)
        self._unread.add(self, chunk.memory)
        self._wake()

    def _stands_still(self) -> bool:
        """Tell whether the client has taken nothing for a while."""
        unsent, now = self.unsent(), time.monotonic()
        if unsent != self._seen:
            self._seen, self._taken_at = unsent, now
        return now - self._taken_at > STILL_SECONDS

    def end_unread(self) -> None:
        """End because the client does not read what has come."""
        self._drop()
        self.fail(EngineError(UNREAD))
        self.abort()

    def _drop(self) -> list[Chunk]:
        chunks, self._chunks = self._chunks, []
        self._unread.answers.forget(self)
        self._seen = -1
        return chunks

    def fail(self, error: LmiError) -> None:
        """End with an error, after what has come."""
        self._error = self._error or error
        self.is_over = True
        self._wake()

    async def read(self) -> list[Chunk]:
        """Wait for the next chunks, and return all that have come.

        Raises:
            LmiError: the request failed; what came before has been returned.
        """
        if not (self._before or self._chunks or self._error):
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        if self._before:
            # There may be many, and others are to run too.
            await asyncio.sleep(0)
            return self._before.pop(0)
        if not self._chunks and self._error is not None:
            raise self._error
        return self._drop()

    def close(self) -> None:
        """Forget a finished request; abort one that is not finished."""
        if self._connection.forget(self.request_id) and not self.is_over:
            self.abort()
        # Not asked for either, where it waits for its model.
        self.is_over = True
        self._drop()

    def abort(self) -> None:
        """Tell the model that nobody waits."""
        self._connection.forget(self.request_id)
        self._connection.send(msg.Abort([self.request_id]))

    @property
    def is_behind(self) -> bool:
        """Whether not all is read that another front end had."""
        return bool(self._before)

    def keep(self, kept: Kept) -> None:
        """Note how its client may get it again."""
        self._kept = kept
        self._connection.questions.when_moved[kept.name] = kept.moved

    async def call(self, alias: str, *, is_deleted: bool = False) -> None:
        """Have the model know by what it is to find the answer too, or that it is deleted."""
        if self._kept is not None:
            message = Deleted(alias) if is_deleted else Named(self._kept.name, alias)
            self._connection.send(message)
            with contextlib.suppress(UnavailableError):
                await self._connection.questions.find(alias)

    def cancel(self) -> None:
        """Tell the model that what there is of the answer is all."""
        if self._kept is not None:
            self._connection.send(Cancelled(self._kept.name))

    def forget(self) -> None:
        """Tell the model that the answer is kept no longer."""
        if self._kept is not None:
            self._connection.send(Forget(self._kept.name))
            self._connection.questions.when_moved.pop(self._kept.name, None)

    def move(self, connection: ModelConnection, request_id: int) -> None:
        """Have another connection resume the answer."""
        self._connection, self.request_id = connection, request_id
        if self.progress is not None:
            self.progress.times += 1
            self.progress.is_acknowledged = False
            connection.send(self._with_before(self.progress.message(request_id)))
            if self._kept is not None:
                connection.questions.when_moved[self._kept.name] = self._kept.moved

    def _with_before(self, message: _Submit) -> _Submit:
        """Add to a request that resumes what its client has got, if that is known."""
        is_read = not self._before and not self._chunks
        if self._kept is None or not is_read:
            return message
        work = message.requests[0] if isinstance(message, msg.Submit) else message.request
        where, keep = work.continuation, message.keep
        if where is None or keep is None:
            return message
        return replace(message, keep=replace(keep, before=self._kept.before(where)))

    def end(self) -> None:
        """Note that the last chunk has come."""
        self.is_over = True

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
            self._waiting = None
