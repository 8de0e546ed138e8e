"""The answers that this process keeps for clients that reconnect."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import HttpError
from lmi_backend.frontend.background_answer import BackgroundAnswer
from lmi_backend.frontend.kept_answer import WANTED, KeptAnswer
from lmi_backend.ipc.rejoining import NOT_KEPT
from lmi_backend.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.frontend.http.exchange import Exchange

LAST_ID: Final = "last-event-id"
KEPT_BYTES: Final = 4 << 20
"""Of one answer. Above it the oldest events are deleted."""
ALL_KEPT_BYTES: Final = 256 << 20
"""Of all answers. Above it those are deleted of the key that holds most, first the answer whose
client disconnected first."""
_ID: Final = re.compile(r"([\w-]{16})\.([0-9]{1,9})", re.ASCII)


@dataclass
class _Counts:
    """What became of the answers of a model."""

    resumed: int = 0
    """Times that a client reconnected."""
    lapsed: int = 0
    """Answers that were cancelled because their clients did not reconnect."""
    rejoined: int = 0
    """Answers that another front end had begun."""


class Keeping:
    """Holds the kept answers, and bounds their number and size."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptAnswer] = {}
        self._away: dict[str, KeptAnswer] = {}
        """Answers whose clients are disconnected, in the order of their disconnections."""
        self._counts: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._sizes: Shares[KeptAnswer] = Shares()

    def counts(self, model: str) -> dict[str, int]:
        """Return a model's counts, the number of its kept answers, and their bytes."""
        sizes = [self._sizes.of(each) for each in self._kept.values() if each.model == model]
        return {"kept": len(sizes), "kept_bytes": sum(sizes), **asdict(self._counts[model])}

    def open(self, exchange: Exchange, model: ModelInfo) -> KeptAnswer | None:
        """Return what takes an answer in place of its client; None if it is not to be kept."""
        asked = exchange.headers.get(WANTED)
        is_wanted = model.is_resumable if asked is None else asked.strip().lower() in ("1", "true")
        if not is_wanted or not model.resume_window:
            return None
        return KeptAnswer(self, exchange, model.resume_window)

    def in_background(
        self, exchange: Exchange, model: ModelInfo, *, is_stream: bool
    ) -> BackgroundAnswer:
        """Return what takes an answer whose client need not stay."""
        return BackgroundAnswer(self, exchange, model.resume_window, is_stream=is_stream)

    def again(
        self, exchange: Exchange, model: ModelInfo, name: str, *, is_lasting: bool = False
    ) -> KeptAnswer | None:
        """Return what takes an answer of a name that another front end had; None as `open`."""
        if not model.resume_window:
            return None
        kind = BackgroundAnswer if is_lasting else KeptAnswer
        return kind(self, exchange, model.resume_window, name)

    async def come_back(self, exchange: Exchange, owner: str) -> None:
        """Send a client the events after the one that it names.

        Args:
            exchange: its request.
            owner: digest of what that has in common with the first one (`rejoining.py`).

        Raises:
            HttpError: nothing is kept there for this client (404).
        """
        name, number = self.named(exchange)
        kept = self._kept.get(name)
        if kept is None or kept.request != owner:
            raise HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT)
        await self.follow(exchange, kept, number)

    def named(self, exchange: Exchange) -> tuple[str, int]:
        """Return the answer and the event that a client names; raises like `come_back`."""
        if (match := _ID.fullmatch(exchange.headers[LAST_ID].strip())) is None:
            raise HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT)
        return match[1], int(match[2])

    def has(self, exchange: Exchange) -> bool:
        """Tell whether the answer that a client names is here; raises like `come_back`."""
        return self.named(exchange)[0] in self._kept

    def has_of(self, exchange: Exchange) -> bool:
        """Tell whether a request names an answer that is here and that its client has begun."""
        match = _ID.fullmatch(exchange.headers.get(LAST_ID, "").strip())
        kept = self._kept.get(match[1]) if match else None
        return kept is not None and kept.owner == (exchange.key_digest, exchange.path)

    async def follow(self, exchange: Exchange, kept: KeptAnswer, number: int) -> None:
        """Send a client the events after one; raises like `come_back`."""
        if not kept.events.has(number):
            raise HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT)
        exchange.model = kept.model
        if exchange.key is not None:
            # The answer counts in its place.
            exchange.key.leave(0)
            exchange.key = None
        self.note_back(kept)
        await kept.follow(exchange, number)

    def note_back(self, kept: KeptAnswer) -> None:
        """Count that a client has reconnected."""
        self._counts[kept.model].resumed += 1

    def of_path(self, key_digest: str, path: str) -> Iterator[KeptAnswer]:
        """Yield the answers that a client has begun on a path."""
        owner = key_digest, path
        return (each for each in self._kept.values() if each.owner == owner)

    def add(self, kept: KeptAnswer) -> None:
        """Begin to keep an answer."""
        self._kept[kept.name] = kept
        self._counts[kept.model].rejoined += kept.is_back
        self.note_size(kept)

    def note_away(self, kept: KeptAnswer, *, is_away: bool) -> None:
        """Note that a client has disconnected, or is connected."""
        self._away.pop(kept.name, None)
        if is_away and kept.name in self._kept:
            self._away[kept.name] = kept

    def note_size(self, kept: KeptAnswer) -> None:
        """Count the memory of an answer that has changed, and keep it within the bounds."""
        if kept.name not in self._kept:
            return
        self._count(kept)
        if self._sizes.of(kept) > KEPT_BYTES:
            self._bound(kept)
        while self._sizes.size > ALL_KEPT_BYTES and self._free_some():
            pass

    def _count(self, kept: KeptAnswer) -> None:
        self._sizes.add(kept, kept.events.size - self._sizes.of(kept), kept.owner[0])

    def _bound(self, kept: KeptAnswer) -> None:
        if kept.is_away:
            # Its client would miss what is deleted.
            self.forget(kept)
        else:
            kept.events.shrink()
            self._count(kept)

    def _free_some(self) -> bool:
        """Delete something; return whether there was anything."""
        of_one = self._sizes.largest_owner()
        owner = of_one[0].owner[0]
        if first := next((each for each in self._away.values() if each.owner[0] == owner), None):
            self.forget(first)
            return True
        largest = max(of_one, key=self._sizes.of)
        has_shrunk = largest.events.shrink()
        self._count(largest)
        return has_shrunk

    def forget(self, kept: KeptAnswer) -> None:
        """Delete an answer; cancel it if it is not complete."""
        if self._kept.pop(kept.name, None) is None:
            return
        self._away.pop(kept.name, None)
        self._sizes.forget(kept)
        self._counts[kept.model].lapsed += not kept.is_over
        kept.forget()
