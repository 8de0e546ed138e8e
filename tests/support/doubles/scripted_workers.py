"""Workers of a `Service` that answer, die and come back when the test says so."""

from collections.abc import Callable
from typing import Any

from lmi_backend.engine_config import Identity
from lmi_backend.errors import EngineDeadError, NotSentError, UnavailableError
from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.frames import Frame, FrameDecoder
from lmi_backend.pool.rank_group import WorkerStats


class ScriptedWorkers:
    """See `Workers`. `capacity` is each one's."""

    def __init__(self, capacity: int = 2, count: int = 1) -> None:
        self._capacity = capacity
        self.is_alive = [True] * count
        self.outstanding = [0] * count
        self.assigned = [0] * count
        self.processes = [object() for _ in range(count)]
        """Another one where a worker was replaced."""
        self.requests: list[dict[int, int]] = [{} for _ in range(count)]
        """Of each worker: the requests it works on, and how many answers each will have."""
        self.sent: dict[int, Any] = {}
        """Each message, by its request's id."""
        self.order: list[int] = []
        """All requests workers were sent, as they came."""
        self.identities = [Identity()] * count
        """What the answers of each worker depend on."""
        self.listener: Any = None
        self.num_unwanted = 0
        """How many of those that are not alive are not to run."""
        self.queue_notes: list[tuple[int, str]] = []
        self.claims: list[Callable[[Any], object]] = []
        """What is done with the worker of the next claim, and of those after it."""

    def start(self, listener: Any) -> Any:
        self.listener = listener

    def capacity(self) -> int:
        return self._capacity * sum(self.is_alive)

    def unwanted_capacity(self) -> int:
        return self._capacity * self.num_unwanted

    def note_queue(self, waiting: int, refused: str = "") -> None:
        self.queue_notes.append((waiting, refused))

    def claim(self, width: int, choose: Any) -> tuple[int, "_Worker"]:
        alive = [_Worker(self, index) for index, lives in enumerate(self.is_alive) if lives]
        if (worker := choose(alive)) is None:
            raise UnavailableError("no worker is ready")
        if self.claims:
            self.claims.pop(0)(worker)
        self.outstanding[worker.index] += width
        self.assigned[worker.index] += width
        return worker.index, worker

    def abort(self, index: int, numbers: list[int]) -> None:
        for number in numbers:
            self.requests[index].pop(number, None)

    def done(self, index: int, width: int) -> None:
        self.outstanding[index] -= width

    def is_ready(self) -> bool:
        return any(self.is_alive)

    def ready_in(self) -> float:
        return 0.0 if any(self.is_alive) else 1.0

    def stats(self) -> list[Any]:
        return [WorkerStats(EngineStats(), 0, 0, is_alive) for is_alive in self.is_alive]

    def close(self) -> None:
        pass

    def answer(self, number: int) -> None:
        """Answer a request to its end."""
        (worker,) = [requests for requests in self.requests if number in requests]
        width = worker.pop(number)
        chunks = [Delta("a", 1, "stop", index=index) for index in range(width)]
        self.listener.on_messages([msg.Output(number, chunk) for chunk in chunks])

    def say(self, number: int, text: str, ids: bytes) -> None:
        chunk = Delta(text, 1, ids=ids)
        self.listener.on_messages([msg.Output(number, chunk)])

    def revive(self, index: int) -> None:
        self.is_alive[index] = True
        self.processes[index] = object()
        self.listener.on_ready()

    def die(self, index: int) -> None:
        self.is_alive[index] = False
        self.requests[index].clear()
        self.listener.on_death(index, EngineDeadError("it died"))


class _Worker:
    is_extra, is_behind, stats = False, False, EngineStats()

    def __init__(self, workers: ScriptedWorkers, index: int) -> None:
        self._workers, self.index, self.name = workers, index, f"model/{index}"
        self.identity, self.worker = workers.identities[index], workers.processes[index]
        self.outstanding, self.assigned = workers.outstanding[index], workers.assigned[index]

    def send_frame(self, frame: Frame) -> None:
        if not self._workers.is_alive[self.index]:
            raise NotSentError("it is dead")
        decoder: FrameDecoder[Any] = FrameDecoder(msg.ToWorker, limit=1 << 24)
        for message in decoder.feed(b"".join(frame)):
            work = message.requests if isinstance(message, msg.Submit) else ()
            width = len(work) * work[0].n if work else 1
            self._workers.requests[self.index][message.id] = width
            self._workers.order.append(message.id)
            self._workers.sent[message.id] = message
