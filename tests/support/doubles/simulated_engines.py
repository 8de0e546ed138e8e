"""Workers on a clock of their own: engines that batch, read prompts in pieces, and cache them.

A token is four bytes and a block of the cache 16 tokens. A step reads at most so many tokens of
prompts, and makes a token of each answer. It takes a while for itself, for each answer and for each
token that it reads.
"""

import heapq
import itertools
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lmi_backend.engine_config import RequestLimits
from lmi_backend.errors import LateError
from lmi_backend.generation import Delta
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.serving.admission import Admission, Limits
from lmi_backend.serving.choice import Choice
from lmi_backend.serving.prefixes import prompt_of
from lmi_backend.serving.promises import Promises
from lmi_backend.serving.request_state import RequestState
from lmi_backend.serving.stats import RequestStats

BLOCK_TOKENS = 16
_unique = itertools.count()


def text(tokens: int) -> list[bytes]:
    """Return a text that no other begins like, in blocks."""
    return [b"%016x" % next(_unique) * 4 for _ in range(max(1, round(tokens / BLOCK_TOKENS)))]


@dataclass(eq=False)
class SimulatedRequest:
    """A request and what became of it."""

    messages: list[list[bytes]]
    num_tokens: int
    """Of its answer."""
    tenant: str = ""
    session: str = ""
    came: float = 0.0
    began: float = 0.0
    """When its first token came."""
    ended: float = 0.0
    cached: int = 0
    """Tokens of the prompt that were in the cache."""
    unread: int = 0
    """Tokens of the prompt that are to be read yet."""
    made: int = 0
    """Tokens of its answer that came."""
    promise: tuple[int, int] = (0, 0)
    """As clients say it, in milliseconds."""
    is_refused: bool = False
    state: Any = None
    follows: Callable[["SimulatedRequest"], "tuple[float, SimulatedRequest] | None"] = (
        lambda _request: None
    )
    """Returns the next request of its client, and when it comes."""

    @property
    def blocks(self) -> list[bytes]:
        return [block for message in self.messages for block in message]


@dataclass(frozen=True)
class Speed:
    """Seconds that a step takes."""

    step: float = 0.01
    answer: float = 0.00005
    token: float = 0.00005
    """Of a prompt."""
    most_tokens: int = 2048
    """Of prompts, in a step."""


@dataclass(eq=False)
class SimulatedWorker:
    """An engine, as a `Slot` in the pool of its stub."""

    index: int
    most: int
    """Answers at once."""
    kv_blocks: int
    speed: Speed
    outstanding: int = 0
    assigned: int = 0
    is_extra: bool = False
    is_behind: bool = False
    worker: object = field(default_factory=object)
    is_busy: bool = False
    waiting: deque[SimulatedRequest] = field(default_factory=deque)
    running: list[SimulatedRequest] = field(default_factory=list)
    _cache: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    _reads: dict[SimulatedRequest, int] = field(default_factory=dict)

    @property
    def stats(self) -> EngineStats:
        return EngineStats(kv_blocks=self.kv_blocks, kv_block_size=BLOCK_TOKENS)

    def begin_step(self) -> float:
        """Return how long the next step takes; 0 where there is nothing to do."""
        while self.waiting and len(self.running) < self.most:
            request = self.waiting.popleft()
            blocks = request.blocks
            found = sum(1 for _ in itertools.takewhile(self._cache.__contains__, blocks[:-1]))
            request.cached = found * BLOCK_TOKENS
            request.unread = len(blocks) * BLOCK_TOKENS - request.cached
            self.running.append(request)
        answers = sum(not each.unread for each in self.running)
        left, self._reads = self.speed.most_tokens - answers, {}
        for each in self.running:
            if each.unread and left > 0:
                self._reads[each] = min(each.unread, left)
                left -= self._reads[each]
        read = sum(self._reads.values())
        self.is_busy = bool(self.running)
        seconds = self.speed.step + self.speed.answer * answers + self.speed.token * read
        return seconds if self.is_busy else 0.0

    def end_step(self, now: float) -> tuple[list[SimulatedRequest], list[SimulatedRequest]]:
        """Return the requests whose answers began, and those whose answers are over."""
        began = []
        for each in self.running:
            if each.unread:
                each.unread -= self._reads.get(each, 0)
                if each.unread:
                    continue
                each.began = now
                began.append(each)
                self._keep(each.blocks)
            each.made += 1
        ended = [each for each in self.running if each.made >= each.num_tokens]
        self.running = [each for each in self.running if each.made < each.num_tokens]
        for each in ended:
            each.ended = now
        return began, ended

    def _keep(self, blocks: Iterable[bytes]) -> None:
        for block in reversed(list(blocks)):
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > self.kv_blocks:
            self._cache.popitem(last=False)


class Simulation:
    """A stub's scheduling, and engines.

    Args:
        threshold: option.concurrency_threshold.
        most: answers that a worker makes at once.
        refuses: whether requests are refused that will be late.
    """

    def __init__(
        self,
        count: int,
        threshold: int = 8,
        most: int = 64,
        kv_blocks: int = 1 << 20,
        speed: Speed | None = None,
        *,
        refuses: bool = True,
        **limits: Any,
    ) -> None:
        self.workers = [
            SimulatedWorker(index, most, kv_blocks, speed or Speed()) for index in range(count)
        ]
        self._limits = requests = RequestLimits(max_running=most, queue_size=1 << 30, **limits)
        self._capacity = most * count
        self._slots: Any = self.workers
        self.now = 0.0
        self.admission = Admission(Limits(most * count, requests), lambda: self.now)
        self.stats = RequestStats()
        self.promises = Promises(self.admission, self.stats, is_used=True, clock=lambda: self.now)
        self._refuses = refuses
        self.choice, self._reads_prompt = Choice(threshold, most), threshold > 0
        self.ended: list[SimulatedRequest] = []
        self._ids, self._order = itertools.count(1), itertools.count()
        self._events: list[tuple[float, int, Any]] = []
        self._requests: dict[RequestState, SimulatedRequest] = {}

    def add(self, at: float, request: SimulatedRequest) -> None:
        self._push(at, request)

    def run(self) -> list[SimulatedRequest]:
        """Go on until all requests are answered; return them, in the order of their ends."""
        while self._events:
            self.now, _, what = heapq.heappop(self._events)
            if isinstance(what, SimulatedWorker):
                self._end_step(what)
            else:
                self._enter(what)
        return self.ended

    def _push(self, at: float, what: object) -> None:
        heapq.heappush(self._events, (at, next(self._order), what))

    def _enter(self, request: SimulatedRequest) -> None:
        number = next(self._ids)
        state = RequestState(number, None, deadline=9e9, width=1, n=1)  # type: ignore[arg-type]
        request.came, request.state, state.tenant = self.now, state, request.tenant
        state.size = len(request.blocks) * BLOCK_TOKENS * 4
        if self._reads_prompt:
            pieces = [b"".join(message) for message in request.messages]
            state.prompt = prompt_of(pieces, sum(map(len, pieces)), request.session)
        state.began = self.now
        if request.promise != (0, 0):
            state.promise(*request.promise, self._limits, math.inf)
            if self._refuses and not self._admits(state):
                request.is_refused = True
                self.ended.append(request)
                return
        self._requests[state] = request
        self.admission.enqueue(state)
        self._release()

    def _admits(self, state: RequestState) -> bool:
        try:
            displaced = self.promises.check(state, self._capacity)
        except LateError:
            return False
        for other in displaced:
            self._refuse(other)
        return True

    def _refuse(self, state: RequestState) -> None:
        self.admission.withdraw(state)
        request = self._requests.pop(state)
        request.is_refused = True
        self.ended.append(request)

    def _release(self) -> None:
        while (state := self.admission.next(self._capacity)) is not None:
            if self._refuses and self.promises.broken(state) is not None:
                self._refuse(state)
                continue
            worker: Any = self.choice.choose(state, self._slots)
            assert worker is not None
            worker.outstanding += 1
            worker.assigned += 1
            state.worker = worker.index
            self.promises.started(state, self._capacity)
            self.admission.started(state)
            worker.waiting.append(self._requests[state])
            if not worker.is_busy:
                self._begin_step(worker)

    def _begin_step(self, worker: SimulatedWorker) -> None:
        if seconds := worker.begin_step():
            self._push(self.now + seconds, worker)

    def _end_step(self, worker: SimulatedWorker) -> None:
        began, ended = worker.end_step(self.now)
        for each in worker.running + ended:
            each.state.num_tokens = each.made
        for each in began:
            length = len(each.blocks) * BLOCK_TOKENS
            chunk = Delta(num_prompt_tokens=length, num_cached_tokens=each.cached)
            each.state.first_at = self.now
            self.choice.begun(each.state, chunk)
            self.admission.begun(each.state, length, each.cached)
            self.promises.begun(each.state, chunk)
        for each in ended:
            worker.outstanding -= 1
            del self._requests[each.state]
            if each.made > 1:
                self.stats.passed({(each.began, each.made - 1): 1}, self.now)
            self.admission.ended(each.state)
            self.promises.ended(each.state)
            self.ended.append(each)
            if (following := each.follows(each)) is not None:
                self._push(*following)
        self._release()
        self._begin_step(worker)


@dataclass(frozen=True)
class Conversations:
    """Conversations that come at random. Lengths are means, in tokens."""

    count: int
    turns: float
    system: list[bytes]
    """That all have."""
    user: float
    answer: float
    every: float
    """Seconds from one conversation to the next."""
    pause: float = 1.0
    """Seconds from an answer to the next turn."""
    own_system: float = 0.0

    def starts(self, draw: random.Random) -> Iterator[tuple[float, SimulatedRequest]]:
        at = 0.0
        for _ in range(self.count):
            at += draw.expovariate(1 / self.every)
            turns = max(1, round(draw.expovariate(1 / self.turns))) if self.turns > 1 else 1
            own = [text(self.own_system)] if self.own_system else []
            yield at, self._turn([self.system, *own], turns, draw)

    def _turn(self, before: list[list[bytes]], left: int, draw: random.Random) -> SimulatedRequest:
        asked = text(draw.expovariate(1 / self.user))
        length = max(1, round(draw.expovariate(1 / self.answer)))

        def next_turn(request: SimulatedRequest) -> tuple[float, SimulatedRequest] | None:
            if left == 1:
                return None
            messages = [*request.messages, text(length)]
            pause = draw.expovariate(1 / self.pause)
            return request.ended + pause, self._turn(messages, left - 1, draw)

        return SimulatedRequest([*before, asked], length, follows=next_turn)


def cached_share(requests: list[SimulatedRequest]) -> float:
    """Return the share of all prompts' tokens that was in a cache."""
    whole = sum(len(each.blocks) for each in requests) * BLOCK_TOKENS
    return sum(each.cached for each in requests) / whole


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that a share of some values is below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
