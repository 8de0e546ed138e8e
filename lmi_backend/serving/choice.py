"""Choose the worker of a request: the one that has the least to read before its first token.

A worker has to read what it does not know of the prompt (`prefixes.py`). It first reads the prompts
of others that have no token yet. If it generates many answers, each slows it down, too, and counts
as some bytes. So a conversation stays with its worker, unless that one has clearly more to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmi_backend.serving.prefixes import Expectation, WorkerLoad, bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.ipc.engine import EngineStats
    from lmi_backend.pool.slot import Slot
    from lmi_backend.serving.prefixes import Prompt
    from lmi_backend.serving.request_state import RequestState

_ANSWER_BYTES: Final = 128
"""An answer that is generated counts as so much text to read. This and the next were chosen in
simulated loads of all sizes, by when answers begin and how much caches find."""
_FREE: Final = 4
"""Up to this part of the answers that a worker generates at once, one more hardly slows others."""
_KNOWN: Final = 1.5
"""So often a text counts that a worker knows: read elsewhere, it would delay the others there."""
_LOST: Final = 0.7
"""Share of the expected tokens that a cache has: bytes do not tell tokens exactly. Of that share it
has whole blocks."""
_BLOCK_TOKENS: Final = 32
"""Of an engine that does not say how long its blocks are."""


class Choice:
    """Chooses workers; guarded by the service's lock.

    Args:
        threshold: a worker with so many more answers to make than another gets no request that the
            other can take (option.concurrency_threshold); 0: what workers know does not matter.
        most: answers that one worker generates at once.
    """

    def __init__(self, threshold: int, most: int) -> None:
        self._threshold, self._most = threshold, most
        self.loads: dict[int, WorkerLoad] = {}
        self.num_hits = self.num_lost = self.num_moves = 0
        """As the metrics say."""

    def choose(self, state: RequestState, ready: Sequence[Slot]) -> Slot | None:
        self.begun(state)
        if state.only is not None:
            return next((each for each in ready if each.index == state.only), None)
        if not ready:
            return None
        if state.prompt is None:
            return min(ready, key=_business)
        return self._choose(state, state.prompt, ready)

    def _choose(self, state: RequestState, prompt: Prompt, ready: Sequence[Slot]) -> Slot:
        loads = [self._load(each) for each in ready]
        known = [load.table.count(prompt.keys) for load in loads]
        least = min([each.outstanding for each in ready])
        enough = min(least + self._threshold, max(self._most, least + 1))
        free = self._most // _FREE
        best: tuple[Any, ...] | None = None
        number = 0
        for place, each in enumerate(ready):
            load, outstanding = loads[place], each.outstanding
            work: float = load.unread
            if outstanding > free:
                work += _ANSWER_BYTES * (outstanding - free)
            if count := known[place]:
                work -= _KNOWN * bytes_of(prompt.keys[count - 1])
            if prompt.session and prompt.session in load.table:
                work -= self._threshold * _ANSWER_BYTES
            is_over = outstanding >= enough
            own = (outstanding, each.is_extra, each.assigned, each.index)
            rank = (each.is_behind, is_over, work, *own)
            if best is None or rank < best:
                best, number = rank, place
        if known[number] < max(known):
            self.num_moves += 1
        elif known[number]:
            self.num_hits += 1
        state.expectation = _expectation(prompt, loads[number], known[number], ready[number].stats)
        return ready[number]

    def begun(self, state: RequestState, chunk: Chunk | None = None) -> None:
        """Note that a worker has read a prompt, by its first chunk, or has lost it."""
        expectation, state.expectation = state.expectation, None
        if expectation is None:
            return
        expectation.load.unread -= expectation.unread
        # Of a prompt with several answers each tells the same.
        if chunk is None or chunk.num_cached_tokens is None or state.width != state.n:
            return
        share = expectation.expected / max(expectation.expected + expectation.unread, 1)
        least = _LOST * share * chunk.num_prompt_tokens - expectation.block_tokens
        if chunk.num_cached_tokens < least:
            self.num_lost += 1
            expectation.load.table.drop(expectation.used_before)

    def forget(self) -> None:
        """Forget what workers know: their caches are emptied."""
        self.loads.clear()

    def _load(self, slot: Slot) -> WorkerLoad:
        load = self.loads.get(slot.index)
        if load is None or load.worker is not slot.worker:
            load = self.loads[slot.index] = WorkerLoad(slot.worker)
        return load


def _expectation(prompt: Prompt, load: WorkerLoad, known: int, stats: EngineStats) -> Expectation:
    expected = min(bytes_of(prompt.keys[known - 1]), prompt.size) if known else 0
    load.unread += prompt.size - expected
    used_before = load.table.add(prompt, known, stats.kv_blocks)
    block_tokens = stats.kv_block_size or _BLOCK_TOKENS
    return Expectation(load, prompt.size - expected, expected, used_before, block_tokens)


def _business(each: Slot) -> tuple[int, ...]:
    """Return what orders workers by what they have to do.

    One that is behind with reading comes last. Of two with as much to do, it is the one that runs
    always, and then the one that has had less: also a client that sends one after the other uses
    all of those.
    """
    return (each.is_behind, each.outstanding, each.is_extra, each.assigned, each.index)
