"""What each worker has read before of a prompt, as far as the stub knows.

An engine keeps what it has computed of a prompt, and finds it again for the next one that begins
so. Here stand checksums of beginnings: of a chat one for each message, of a long text one for each
block. The engine says with an answer how much it found, so what it has dropped is dropped here too.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from msgspec import Raw

_SHORTEST: Final = 64
"""Bytes of a beginning that is worth finding; engines keep blocks of at least 16 tokens."""
_BLOCK: Final = 1024
_FIRST_BLOCKS: Final = 256
"""Bytes of the blocks of a text, where there are fewer than `_FINE` before it."""
_FINE: Final = 2048
_BRACE: Final = ord("{")
"""With which messages begin. They are the same or not, so they are not cut so finely."""
MOST_WORKERS: Final = 1024
"""Beginnings of one prompt."""
_ENTRIES: Final = 1 << 15
"""Beginnings of a worker whose engine does not say how much it keeps: about 6 MB here."""


class Prompt(NamedTuple):
    """The prompt of a request, as others may begin like it."""

    size: int
    """Bytes, about."""
    keys: Sequence[int] = ()
    """Of its beginnings, the shortest first; `bytes_of` tells how long they are."""
    session: int = 0
    """Of the session that its client names; 0 for none."""


def prompt_of(pieces: Iterable[bytes | Raw], size: int, session: str = "", salt: int = 0) -> Prompt:
    """Return a prompt that is made of some pieces; its size is in bytes.

    Args:
        salt: differs between prompts that engines keep apart although they read alike.
    """
    keys: list[int] = []
    checksum, end = salt, 0
    for piece in pieces:
        view = memoryview(piece)
        size_of_piece = len(view)
        # Most are short messages, and each call here counts.
        is_whole = size_of_piece <= _FIRST_BLOCKS or (size_of_piece <= _BLOCK and view[0] == _BRACE)
        for block in (view,) if is_whole else _blocks(view, end):
            checksum, end = crc32(block, checksum), end + len(block)
            if end >= _SHORTEST:
                keys.append(end << 32 | checksum)
        if len(keys) >= MOST_WORKERS:
            break
    return Prompt(size, keys, hash(session) if session else 0)


def _blocks(view: memoryview, end: int) -> Iterator[memoryview]:
    at, first = 0, _BLOCK if view[0] == _BRACE else _FIRST_BLOCKS
    while at < min(len(view), MOST_WORKERS * _BLOCK):
        block = view[at : at + (first if end + at < _FINE else _BLOCK)]
        at += len(block)
        yield block


def bytes_of(key: int) -> int:
    return key >> 32


class PrefixTable:
    """The beginnings that one worker has read, and which request used each last, by number."""

    def __init__(self) -> None:
        self._used: dict[int, int] = {}
        self._clock = self._floor = 0
        """What only requests up to the floor have used is forgotten."""

    def __contains__(self, key: int) -> bool:
        return self._used.get(key, 0) > self._floor

    def count(self, keys: Sequence[int]) -> int:
        if not keys or keys[0] not in self:
            return 0
        used, floor = self._used, self._floor
        # Each request uses all beginnings of its prompt, so the longest are forgotten first.
        return bisect_left(keys, 1, key=lambda key: used.get(key, 0) <= floor)

    def add(self, prompt: Prompt, known: int, most: int) -> int:
        """Note that a prompt is read; so many of its beginnings are known.

        Args:
            most: beginnings that the engine keeps; 0 if it does not say.

        Returns:
            Number of the request that used the longest known beginning last; 0 if none is known.
        """
        used, most = self._used, min(most or _ENTRIES, _ENTRIES)
        before = used[prompt.keys[known - 1]] if known else 0
        self._clock += 1
        used.update(dict.fromkeys(prompt.keys, self._clock))
        if prompt.session:
            used[prompt.session] = self._clock
        if len(used) > most:
            # Half of them at once: for each it would take long.
            self._floor = max(self._floor, sorted(used.values())[-most // 2])
            self._used = {key: last for key, last in used.items() if last > self._floor}
        return before

    def drop(self, last: int) -> None:
        """Forget what only requests up to this one have used: engines drop the oldest first."""
        self._floor = max(self._floor, last)


class WorkerLoad:
    """What a worker knows and has to read, as far as it was sent from here."""

    def __init__(self, worker: object) -> None:
        self.worker, self.table, self.unread = worker, PrefixTable(), 0


class Expectation(NamedTuple):
    """What was expected of the worker that was chosen for a request."""

    load: WorkerLoad
    unread: int
    """Bytes of the prompt that it has to read."""
    expected: int
    """Bytes of it that it knows."""
    used_before: int
    """See `PrefixTable.add`."""
    block_tokens: int
    """Tokens of a block of its cache, which has only whole ones."""
