"""The answers that outlive the connection of their front end, until another one requests them.

Their chunks are kept from the first to the last. A front end that comes back gets all of them, for
only it knows which events of the client's they make.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.endpoint.kept_sink import KeptSink
from lmi_backend.errors import HttpError
from lmi_backend.ipc.failures import failure_of
from lmi_backend.ipc.kept_chunks import KeptChunks
from lmi_backend.ipc.rejoining import (
    NOT_KEPT,
    Cancelled,
    Deleted,
    Find,
    Forget,
    Found,
    Named,
    Rejoin,
)
from lmi_backend.shares import Shares
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.ipc import messages as msg
    from lmi_backend.ipc.rejoining import ForKept

_log = logging.getLogger(__name__)

KEPT_BYTES: Final = 4 << 20
"""Of one answer. Above it the answer is kept no longer."""
ALL_KEPT_BYTES: Final = 256 << 20
"""Of all answers of a model. Above it one is deleted of the key that holds most: the first without
a front end, or else the largest."""

MOST_DELETED: Final = 10_000
"""Deleted answers that are remembered: an engine that stores responses has no way to delete one."""


class KeptAnswers:
    """The answers of a model that are kept.

    One lock guards all of them: it is held where chunks come, and where a front end leaves or comes
    back, so that no chunk is lost between two front ends.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._kept: dict[str, KeptSink] = {}
        self._aliases: dict[str, KeptSink] = {}
        self._deleted: dict[str, None] = {}
        """Aliases of answers that their clients deleted, the latest last."""
        self._sizes: Shares[KeptSink] = Shares()
        self._closed = threading.Event()
        self._num_rejoined = 0

    def counts(self) -> dict[str, int]:
        """Return how many answers are kept and without a front end, and what they take."""
        with self.lock:
            alone = sum(sink.is_alone for sink in self._kept.values())
            return {
                "kept": len(self._kept),
                "alone": alone,
                "bytes": self._sizes.size,
                "rejoined": self._num_rejoined,
            }

    def sink(
        self, client: ClientConnection, order: msg.Submit | msg.SubmitHttp, *, is_rest: bool
    ) -> ClientSink:
        """Return the sink of a new request, which keeps its chunks where that is ordered.

        Args:
            client: its front end.
            order: the request, with how its answer is to be kept.
            is_rest: whether it resumes: none is kept if those before are not in the request.
        """
        keep, own = order.keep, (client, order.id, order.tenant)
        if keep is None or self._closed.is_set():
            return ClientSink(*own)
        with self.lock:
            if (before := self._kept.get(keep.name)) is not None:
                # Its front end has lost its connection, and has it generated again.
                self.end(before)
            if is_rest and keep.before is None:
                return ClientSink(*own)
            sink = KeptSink(self, *own, keep)
            self._kept[keep.name] = sink
            self._count(sink)
        if client.is_gone:
            # It left before the sink was known.
            self.leave(client)
        return sink

    def take(self, message: ForKept, client: ClientConnection) -> None:
        """Do what a front end says of an answer that it has, or that another has begun."""
        match message:
            case Rejoin():
                self.rejoin(message, client)
            case Find():
                client.put(self._found(message.alias))
            case Deleted():
                self._delete(message.alias)
            case Forget() | Named() | Cancelled():
                with self.lock:
                    sink = self._kept.get(message.name)
                    if sink is not None and sink.pid == client.pid:
                        self._change(sink, message)

    def _change(self, sink: KeptSink, message: Forget | Named | Cancelled) -> None:
        """Do what the front end that has an answer says."""
        match message:
            case Forget():
                self.end(sink)
            case Named(alias=alias):
                sink.order = replace(sink.order, alias=alias)
                self._aliases[alias] = sink
            case Cancelled():
                sink.cancel()

    def _delete(self, alias: str) -> None:
        with self.lock:
            self._deleted[alias] = None
            if len(self._deleted) > MOST_DELETED:
                del self._deleted[next(iter(self._deleted))]

    def _found(self, alias: str) -> Found:
        with self.lock:
            if alias in self._deleted:
                return Found(is_deleted=True)
            sink = self._aliases.get(alias)
            if sink is None or not sink.is_wanted:
                return Found()
            return Found(sink.order, sink.is_cancelled_by_client)

    def rejoin(self, asked: Rejoin, client: ClientConnection) -> None:
        """Send a front end all of an answer, and what follows."""
        with self.lock:
            sink = self._kept.get(asked.name)
            if sink is None or sink.order.owner != asked.owner:
                error = HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT)
                client.store([failure_of(asked.id, error)])
                others = [client]
            else:
                self._num_rejoined += 1
                others = [client, sink.client]
                sink.move(client, asked.id)
                self._count(sink)
        # Not with the lock held: where it fails, requests end, which takes the service's.
        for each in others:
            each.flush()
        if client.is_gone:
            # It left before it had the answer.
            self.leave(client)

    def leave(self, client: ClientConnection) -> None:
        """Keep the answers of a client that has gone for as long as their clients may reconnect."""
        with self.lock:
            own = [sink for sink in self._kept.values() if sink.client is client]
            for sink in own:
                if not sink.is_wanted or self._closed.is_set():
                    self.drop(sink)
                    sink.is_gone = True
                else:
                    sink.be_alone()
            alone = [sink for sink in own if sink.is_alone]
        if alone:
            _log.info("%d answers are kept: their front end has gone", len(alone))
            guarded_thread("lmi-kept", partial(self._expire, alone)).start()

    def _expire(self, sinks: Sequence[KeptSink]) -> None:
        """Delete answers that no front end has requested when their time is over."""
        while not self._closed.is_set() and (waits := self._end_late(sinks)):
            self._closed.wait(min(waits))

    def _end_late(self, sinks: Sequence[KeptSink]) -> list[float]:
        """Delete the answers whose time is over; return the seconds until the others are due."""
        now = time.monotonic()
        with self.lock:
            alone = [sink for sink in sinks if sink.is_alone and self._has(sink)]
            for sink in alone:
                if sink.ends_at <= now:
                    self.end(sink)
        # The time of a lasting one that is not complete has not begun.
        times = [(sink.ends_at - now, sink.order.seconds) for sink in alone]
        return [min(each) for each in times if each[0] > 0]

    def close(self) -> None:
        """Keep nothing from now on."""
        self._closed.set()
        with self.lock:
            for sink in list(self._kept.values()):
                self.drop(sink)
                if sink.is_alone:
                    sink.is_gone = True

    def add(self, sink: KeptSink, chunks: Sequence[Chunk], *, is_last: bool) -> None:
        """Keep chunks of an answer, within the bounds; the caller has the lock."""
        if not self._has(sink):
            return
        if not sink.may_keep(chunks):
            self.drop(sink)
            return
        sink.chunks.add(chunks)
        if is_last:
            sink.chunks.compress()
        self._count(sink)
        if sink.chunks.size > KEPT_BYTES:
            self.end(sink)
        while self._sizes.size > ALL_KEPT_BYTES:
            of_one = self._sizes.largest_owner()
            alone = (each for each in of_one if each.is_alone)
            self.end(next(alone, None) or max(of_one, key=self._sizes.of))

    def _count(self, sink: KeptSink) -> None:
        if self._has(sink):
            self._sizes.add(sink, sink.chunks.size - self._sizes.of(sink), sink.owner)

    def end(self, sink: KeptSink) -> None:
        """Delete an answer, and cancel it if it has no front end."""
        self.drop(sink)
        if sink.is_alone:
            # Who looks in turn whether clients have gone ends it.
            sink.is_gone = True

    def drop(self, sink: KeptSink) -> None:
        """Delete what is kept of an answer."""
        if self._has(sink):
            del self._kept[sink.order.name]
            self._aliases.pop(sink.order.alias, None)
            self._sizes.forget(sink)
            sink.chunks = KeptChunks()

    def _has(self, sink: KeptSink) -> bool:
        return self._kept.get(sink.order.name) is sink
