"""Streams that outlive the connection of their client, which reconnects for the rest.

The answer is generated without a client for the window of its model. `relay`, which sends it, has
a `KeptAnswer` in place of the client, from the beginning to the end.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.form import EVENTS
from lmi_backend.endpoint.backlog import UNREAD
from lmi_backend.errors import EngineError, HttpError, MovedError
from lmi_backend.frontend.at_model import AtModel
from lmi_backend.frontend.kept_direct import Direct
from lmi_backend.frontend.kept_events import KeptEvents
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc.rejoining import NOT_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from lmi_backend.frontend.http.api_keys import ApiKey
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.keeping import Keeping
    from lmi_backend.generation import Chunk

_log = logging.getLogger(__name__)

WANTED: Final = "x-lmi-resumable"
"""Header of a request: 1 for ids of events, 0 for none where the model gives them."""
_NAME_BYTES: Final = 12
_PING: Final = b": ping\n"
"""Has no empty line: after an id, clients read one as an event without data."""
_TAKEN_OVER: Final = "TakenOver"
"""Error of a connection whose client has reconnected on another one."""


class KeptAnswer:
    """An answer whose client may disconnect and reconnect.

    Until the answer begins, and if it is no stream of events, all is sent to the client at once.

    Args:
        store: holds it while it is kept.
        exchange: its first request.
        window: seconds that it is kept without a client.
        name: of one that another front end has begun; else it gets a new one.
    """

    def __init__(self, store: Keeping, exchange: Exchange, window: float, name: str = "") -> None:
        self._store, self._window = store, window
        self.first = exchange
        """Its first request; deleted when the answer is kept."""
        self.is_back = bool(name)
        """Whether another front end has begun it."""
        self.name = name or secrets.token_urlsafe(_NAME_BYTES)
        self.when_known: Callable[[], object] = _nothing
        """Called when the store has it."""
        self.model, self.owner = exchange.model, (exchange.key_digest, exchange.path)
        self.request = ""  # Digest of its key, path and body.
        self.events = KeptEvents(self.name)
        self.created: dict[str, Any] | None = None
        """For `kept_responses`: the response that the first event has."""
        self.direct = Direct(self)
        """As `Exchange.direct`."""
        self.status, self.error = 0, ""
        self.num_tokens = self.num_prompt_tokens = 0
        self.is_kept = self.is_over = self._has_end = self._is_forgotten = self._is_lost = False
        self._headers: Mapping[str, str] = {}
        self._key: ApiKey | None = None
        self._leave: Callable[[], object] = _nothing
        self.at_model: AtModel | None = None
        """The answer as the model keeps it, if it does."""
        self._reader: Exchange | None = None
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def lose(self) -> None:
        """Delete the answer as soon as it is over: another front end has it."""
        self._is_lost = True
        if self.is_over:
            self._store.forget(self)

    async def serve(self, sending: Coroutine[Any, Any, None], number: int = 0) -> None:
        """Send the answer here, and from here to its first client.

        Args:
            sending: a call of `send_answer` with this object.
            number: of the last event that the client has.

        Raises:
            HttpError: what follows that event is not kept (404).
        """
        exchange = self.first
        if await self.begin(sending, number):
            if number and not self.events.has(number):
                self.detach(exchange)
                raise HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT)
            await self.follow(exchange, number)

    async def begin(self, sending: Coroutine[Any, Any, None], number: int) -> bool:
        """Wait for an event; return false if the client has got the answer, as no stream."""
        exchange = self.first
        # The answer counts as running until it is over, with or without its client.
        self._key, exchange.key = exchange.key, None
        task = self._task = asyncio.ensure_future(sending)
        task.add_done_callback(self._end)
        while not (self.is_over or (self.is_kept and self.events.count >= number)):
            await self.next()
        if self.is_kept:
            return True
        exchange.status, exchange.error = exchange.status or self.status, self.error
        exchange.num_tokens = self.num_tokens
        exchange.num_prompt_tokens = self.num_prompt_tokens
        await task
        return False

    async def follow(self, exchange: Exchange, number: int) -> None:
        """Send a client the events after one; an older connection of the client is closed."""
        if exchange.headers.get(WANTED) == "0":
            # Its client does not return once more.
            self._window = 0.0
        counted = self.num_tokens if number else 0
        self._attach(exchange)
        try:
            await exchange.start(self.status, self._headers)
            exchange.ping_text = _PING
            await self._send(exchange, number)
        finally:
            self.detach(exchange)
            exchange.num_tokens = self.num_tokens - counted
            exchange.num_prompt_tokens = 0 if number else self.num_prompt_tokens

    async def _send(self, exchange: Exchange, number: int) -> None:
        while self._reader is exchange:
            self._news.clear()
            try:
                data, number = self.events.after(number)
            except LookupError:
                _log.warning("an answer of model %s is forgotten: %s", self.model, UNREAD)
                exchange.error = EngineError.__name__
                self._store.forget(self)
                return
            is_whole = self.is_over and number == self.events.count
            if data or (is_whole and self._has_end):
                await exchange.write(data, is_last=is_whole and self._has_end)
            if is_whole:
                exchange.error = self.error
                return
            if not data:
                await self._news.wait()
        exchange.error = exchange.error or ("" if exchange.has_left else _TAKEN_OVER)

    def _attach(self, exchange: Exchange) -> None:
        self._reader = exchange
        self._news.set()
        if self._timer is not None:
            self._timer.cancel()
        self._store.note_away(self, is_away=False)
        exchange.when_gone(partial(self.detach, exchange))

    def detach(self, exchange: Exchange) -> None:
        """Start to wait for the client, unless it has reconnected."""
        if self._reader is not exchange:
            return
        self._reader = None
        self._news.set()
        if not self._is_forgotten:
            self._store.note_away(self, is_away=True)
            self._start_window()

    def _start_window(self) -> None:
        """Delete the answer if its client has not reconnected when its window is over."""
        if self._timer is not None:
            self._timer.cancel()
        later = asyncio.get_running_loop().call_later
        self._timer = later(self._window, self._store.forget, self)

    @property
    def is_away(self) -> bool:
        """Whether its client is disconnected."""
        return self._reader is None

    def forget(self) -> None:
        """Cancel the answer if it is not over."""
        self._is_forgotten = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_over:
            self._leave()
        self._forget_at_model()

    def _forget_at_model(self) -> None:
        if self.at_model is not None:
            self.at_model.answer.forget()

    def _end(self, task: asyncio.Task[None]) -> None:
        """Note that the answer is over."""
        self.is_over = True
        self._leave = _nothing
        self.events.end()
        self._store.note_size(self)
        if self._key is not None:
            self._key.leave(self.num_tokens + self.num_prompt_tokens)
        if self.is_kept and not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer of model %s failed", self.model, exc_info=error)
            self.error = type(error).__name__
        if not self.is_kept:
            self._forget_at_model()
        elif self._is_lost or self.error == MovedError.__name__:
            self._store.forget(self)
        self._news.set()

    def put(self, data: bytes) -> None:
        """Keep data, and wake what sends it to the client."""
        self.events.add(data)
        self._store.note_size(self)
        self._news.set()

    async def next(self) -> None:
        """Wait until something has come, or it is over."""
        self._news.clear()
        await self._news.wait()

    # The interface that `relay` uses.

    @property
    def has_begun(self) -> bool:
        """See `Exchange.has_begun`."""
        return self.is_kept or self.first.has_begun

    @property
    def has_left(self) -> bool:
        """See `Exchange.has_left`."""
        return self._is_forgotten if self.is_kept else self.first.has_left

    def when_gone(self, leave: Callable[[], object]) -> None:
        """See `Exchange.when_gone`."""
        self._leave = leave
        if not self.is_back:
            self.first.when_gone(leave)

    def apart(self, chunks: list[Chunk]) -> Iterable[list[Chunk]]:
        """See `Exchange.apart`: written together, chunks might make other events another time."""
        is_whole = not (self.is_kept or self.is_back) and isinstance(chunks[0], HttpChunk)
        return (chunks,) if is_whole else ([each] for each in chunks)

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """See `Exchange.start`."""
        if not self._keeps(status, headers):
            await self.first.start(status, headers)

    async def respond(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        """See `Exchange.respond`."""
        if self._keeps(status, headers):
            await self.write(data, is_last=True)
        else:
            await self.first.respond(status, data, headers)

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """See `Exchange.write`."""
        if self.is_kept:
            self._has_end = is_last
            self.put(data)
        else:
            await self.first.write(data, is_last=is_last)

    def has_passed(self, num_tokens: int, now: float) -> None:
        """See `Exchange.has_passed`."""
        self.num_tokens += num_tokens
        if not self.is_kept:
            self.first.has_passed(0, now)

    def _keeps(self, status: int, headers: Mapping[str, str]) -> bool:
        """Begin to keep a stream of events; return whether the response is one."""
        self.status, exchange = status, self.first
        is_stream = headers.get("content-type", "").startswith(EVENTS)
        has_left = exchange.has_left and not self.is_back
        if not is_stream or status != HTTPStatus.OK or has_left:
            return False
        self.is_kept, self._headers = True, headers
        del self.first
        self._store.add(self)
        self.when_known()
        self._attach(exchange)
        return True


def _nothing() -> None:
    return None
