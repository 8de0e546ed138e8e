"""A started service without Triton, and short words for asking it."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from lmi_backend.errors import LmiError
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from lmi_backend.ipc.messages import SetAdapter
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import Property
from lmi_backend.plan import EnginePlan, plan_model
from lmi_backend.pool.pool import Pool
from lmi_backend.serving.admission import Limits
from lmi_backend.serving.service import Service
from tests.support.harm.doors import OF_GROUPS, doors
from tests.support.run import spending
from tests.support.run.waiting import HANG_SECONDS


class RecordingSink:
    """Keeps an answer; `is_gone` plays a client that left."""

    def __init__(self) -> None:
        self.request_id = ""
        self.deltas: list[Any] = []
        self.error: LmiError | None = None
        self.endings = 0
        self.is_gone = False
        self.began_at = self.ended_at = 0.0
        self._ended = threading.Event()
        self._began = threading.Event()

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def data(self) -> str:
        """The answer to a body, when it is over."""
        assert self.wait().error is None
        return b"".join(chunk.data for chunk in self.deltas).decode()

    @property
    def answer(self) -> tuple[int, Any]:
        """Its status, and what its JSON says."""
        answer = json.loads(self.data)
        return self.deltas[0].status, answer

    @property
    def events(self) -> list[Any]:
        """What the events of a stream say, or the one body of an answer that is none."""
        lines = self.data.splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        return events or [json.loads(self.data)]

    def send(self, chunks: list[Any], *, is_last: bool) -> None:
        self.deltas += chunks
        self.began_at = self.began_at or time.monotonic()
        self._began.set()
        if is_last:
            self._end()

    def fail(self, error: LmiError) -> None:
        self.error = error
        self._end()

    def is_cancelled(self) -> bool:
        return self.is_gone

    def _end(self) -> None:
        self.endings += 1
        self.ended_at = time.monotonic()
        self._ended.set()

    def wait(self) -> "RecordingSink":
        # It may continue with an engine that has to start first.
        assert self._ended.wait(HANG_SECONDS), "the answer never ended"
        return self

    def wait_first(self) -> "RecordingSink":
        assert self._began.wait(HANG_SECONDS), "the answer never began"
        return self


class Harness:
    """A started service, and short words for asking it."""

    def __init__(
        self,
        service: Service,
        pool: Pool,
        plan: EnginePlan,
        output: list[str],
        others: set[psutil.Process],
    ) -> None:
        self.service, self.pool = service, pool
        self.plan = plan
        self.output = output
        """What the workers wrote."""
        self._others = others

    @property
    def workers(self) -> list[psutil.Process]:
        """The processes that this service started, the oldest first: workers, or their mpirun."""
        found = [each for each in psutil.Process().children() if each not in self._others]
        # By number they come in any order once numbers begin anew.
        return sorted(found, key=psutil.Process.create_time)

    def submit(self, work: Any) -> RecordingSink:
        """Start whole requests, or a call."""
        sink = RecordingSink()
        self.service.submit(work if isinstance(work, HttpRequest) else tuple(work), sink)
        return sink

    def post(self, path: str, body: Any = None) -> RecordingSink:
        return self.submit(HttpRequest(path, b"" if body is None else json.dumps(body).encode()))

    def start(self, prompt: str, *, stream: bool = True, **sampling: Any) -> RecordingSink:
        sink = RecordingSink()
        chosen = Sampling(**{"max_tokens": 32, "temperature": 0.0} | sampling)
        self.service.submit((GenerateRequest(prompt, chosen, stream=stream),), sink)
        return sink

    def ask(self, prompt: str, *, stream: bool = True, **sampling: Any) -> RecordingSink:
        return self.start(prompt, stream=stream, **sampling).wait()

    def adapt(self, name: str, folder: Path | str, **more: bool) -> RecordingSink:
        """Load an adapter, or forget it where there is no folder."""
        sink = RecordingSink()
        _, sink.error = self.service.adapt(SetAdapter(0, name, str(folder), **more))
        return sink

    @contextmanager
    def stopped_cores(self) -> Iterator[None]:
        """Let vLLM's cores stand still, if it is vLLM: its streams surely do not end."""
        family = [below for each in self.workers for below in each.children(recursive=True)]
        cores = [process for process in family if "EngineCore" in " ".join(process.cmdline())]
        for core in cores:
            core.suspend()
        try:
            yield
        finally:
            for core in cores:
                core.resume()

    @contextmanager
    def whole_streams(self) -> Iterator[list[RecordingSink]]:
        """Have streams run meanwhile; each must say what one says when nothing happens."""
        asked = {"max_tokens": 300, "ignore_eos": True}
        undisturbed = self.ask("Count to one hundred:", **asked).text
        streams = [self.start("Count to one hundred:", **asked).wait_first() for _ in range(8)]
        yield streams
        for stream in streams:
            assert (stream.wait().error, stream.text) == (None, undisturbed)

    def running(self) -> int:
        return sum(worker.stats.running for worker in self.service.snapshot().workers)


@contextmanager
def started(properties: dict[str, Any], folder: Path) -> Iterator[Harness]:
    lines = [Property(key, str(value), 0) for key, value in properties.items()]
    plan = plan_model(resolve_options(lines, {}, folder=folder), os.environ)
    output: list[str] = []
    others = set(psutil.Process().children())

    def take(worker: str, line: str) -> None:
        output.append(f"{worker} {line}")
        sys.stderr.write(f"{output[-1]}\n")  # pytest shows it with a test that fails

    pool = Pool(plan, "model", take)
    service = Service(pool, Limits.of(plan))
    service.start()
    spending.started[spending.ENGINES] += plan.engine != "echo"
    try:
        yield (harness := Harness(service, pool, plan, output, others))
        _check_doors(harness)
    finally:
        service.close()


def _check_doors(harness: Harness) -> None:
    """Fail if a worker listens where another user of the machine reaches it."""
    if harness.plan.parallel.nodes > 1:
        # Machines meet on ports: the network between them must be trusted.
        return
    kept = OF_GROUPS if harness.plan.parallel.mode == "mpi" else ()
    found = [door for door in doors(harness.workers) if not any(each in door for each in kept)]
    assert not found, found
