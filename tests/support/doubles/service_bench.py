"""A service whose threads a test stands in for."""

from typing import Any

from lmi_backend.engine_config import RequestLimits
from lmi_backend.errors import LmiError
from lmi_backend.generation import Chunk, Delta, GenerateRequest
from lmi_backend.serving.admission import OPEN_BYTES, Limits
from lmi_backend.serving.new_requests import Sender
from lmi_backend.serving.request_state import RequestState
from lmi_backend.serving.service import Service
from lmi_backend.serving.spans import RequestTracer
from tests.support.doubles.scripted_workers import ScriptedWorkers

CAPACITY = 2
RUNNING = CAPACITY + 1
"""Of a worker: what it runs, and one that waits in the engine's own queue."""


class Sink:
    """A client who notes each end of its request: there should be one."""

    def __init__(self, request_id: str = "") -> None:
        self.request_id = request_id
        self.ends: list[str] = []
        self.text = ""
        self.errors: list[str] = []
        self.has_gone = False

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        self.text += "".join(chunk.text for chunk in chunks if isinstance(chunk, Delta))
        if is_last:
            self.ends.append("answered")

    def fail(self, error: LmiError) -> None:
        self.ends.append(type(error).__name__)
        self.errors.append(str(error))

    def is_cancelled(self) -> bool:
        return self.has_gone


def state_of(sink: Any = None, number: int = 1, **fields: Any) -> RequestState:
    """Return the state of a request for one answer, unless something else is said."""
    own = {"deadline": 9e9, "width": 1, "n": 1, **fields}
    return RequestState(number, sink or Sink(), **own)


def limits_of(
    running: int,
    waiting: int,
    open_bytes: int = OPEN_BYTES,
    migration_timeout: float | None = 0,
    **requests: Any,
) -> Limits:
    """Limits of a model that waits for no worker, unless it is said how long."""
    of_requests = RequestLimits(queue_size=waiting, migration_timeout=migration_timeout, **requests)
    return Limits(running, of_requests, open_bytes)


class Bench:
    """A service whose threads do not run: the test does their work, in the order it likes."""

    def __init__(
        self,
        count: int = 1,
        waiting: int = 100,
        capacity: int = CAPACITY,
        tracer: RequestTracer | None = None,
        **limits: Any,
    ) -> None:
        self.workers = ScriptedWorkers(capacity, count)
        bounds = limits_of(capacity * count, waiting, **limits)
        self.service = Service(self.workers, bounds, tracer=tracer)  # type: ignore[arg-type]
        self.workers.start(self.service)
        self.sinks: list[Sink] = []

    def submit(self, tenant: str = "", width: int = 1, prompt: str = "a") -> Sink:
        sink = Sink(str(len(self.sinks) + 1))
        self.sinks.append(sink)
        self.service.submit((GenerateRequest(prompt, n=width),), sink, Sender(tenant))
        return sink

    def fill(self, count: int = RUNNING) -> None:
        """Send some requests: by default as many as a worker takes."""
        for _ in range(count):
            self.submit()

    def send_released(self) -> None:
        self.service.dispatch.released.step()

    def send_answers(self) -> None:
        self.service.senders.step()

    def settle(self) -> None:
        for _ in range(2):
            self.send_answers()
            self.send_released()

    def die(self, index: int = 0) -> None:
        """Let a worker die, and have everybody hear of it."""
        self.workers.die(index)
        self.settle()

    def revive(self, index: int = 0) -> None:
        self.workers.revive(index)
        self.settle()

    def answer(self, *numbers: int) -> None:
        for number in numbers:
            self.workers.answer(number)
        self.settle()

    @property
    def waiting(self) -> int:
        return self.service.snapshot().waiting

    def open(self) -> list[int]:
        return [number for requests in self.workers.requests for number in requests]
