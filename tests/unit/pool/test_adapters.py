"""Whatever happens to the adapters while a worker starts, it has those that are listed, or waits.

The pool, the service and the manager of the adapters are the real ones; workers are told to be.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.engine_config import Identity
from lmi_backend.errors import RequestError, WorkerError
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import Frame, FrameDecoder
from lmi_backend.ipc.messages import failure_of
from lmi_backend.pool import pool as module
from lmi_backend.pool.adapters import AdapterSet
from lmi_backend.pool.pool import Pool
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.service import Service
from tests.support.doubles.service_bench import limits_of
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.harness import RecordingSink
from tests.unit.plan.test_planner import plan
from tests.unit.pool.test_pool import Survivors
from tests.unit.pool.test_pool import Worker as ReadyWorker

Step = Callable[[], None]


class Worker(ReadyWorker):
    """A worker that keeps the adapters that it is told, and may refuse one."""

    def __init__(self, name: str, on_step: Callable[[str], None], **adapters: str) -> None:
        super().__init__(name)
        self._on_step = on_step
        self.identity = Identity(adapters=dict(adapters))
        self.adapters = dict(adapters)
        self.refuses = ""
        self._answers: queue.SimpleQueue[msg.FromWorker | None] = queue.SimpleQueue()

    def send(self, *messages: msg.ToWorker) -> None:
        self._on_step("it is told")
        for each in messages:
            self.take(each)
        self._on_step("it has been told")

    def send_frame(self, frame: Frame) -> None:
        decoder: FrameDecoder[Any] = FrameDecoder(msg.ToWorker, limit=1 << 24)
        for each in decoder.feed(b"".join(frame)):
            self.take(each)

    def take(self, order: Any) -> None:
        if order.folder and order.name == self.refuses:
            error = RequestError("is refused", field="adapter", value=order.name)
            self._answers.put(failure_of(order.id, error))
            return
        self.adapters.pop(order.name, None)
        if order.folder:
            self.adapters[order.name] = order.digest
        self._answers.put(msg.Output(order.id, HttpChunk(is_last=True)))

    def note_adapter(self, name: str, digest: str) -> None:
        adapters = {key: value for key, value in self.identity.adapters.items() if key != name}
        self.identity = Identity(adapters=adapters | ({name: digest} if digest else {}))

    def read(self) -> list[msg.FromWorker]:
        message = self._answers.get(timeout=HANG_SECONDS)
        if message is None:
            raise WorkerError("gone")
        return [message]

    def ready(self) -> "Worker":
        self._on_step("its engine has started")
        return self

    def kill(self) -> None:
        self._answers.put(None)


class Served:
    """A model of some workers; `on_step` is called at each step of the start of one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, roots: Path, count: int = 2) -> None:
        self.on_step: Callable[[str], None] = lambda _name: None
        self.started: list[Worker] = []
        self.kind = Worker
        monkeypatch.setattr(module, "launch", self.launch)
        monkeypatch.setattr(module, "Survivors", lambda *_: self.survivors)
        self.survivors = Survivors()
        text = f"option.spare_workers=0\nminWorkers={count}"
        self.pool = Pool(plan(text), "m", lambda *_: None)
        self.pool.on_start = lambda _worker: self.step("it is identified")
        self.service = Service(self.pool, limits_of(8, 8))
        self.manager = LoraManager(self.pool.adapters, self.service, (str(roots),), is_enabled=True)
        self.manager.on_set = self.pool.note_adapter
        self.manager.on_unequal = self.pool.end_worker

    def step(self, name: str) -> None:
        self.on_step(name)

    def launch(self, *_: Any, name: str, **__: Any) -> Worker:
        self.step("it is launched")
        self.started.append(self.kind(name, self.step))
        return self.started[-1]

    def change(self, kind: str, name: str, **body: Any) -> RecordingSink:
        asked = {"requestType": f"{kind}_ADAPTER", "name": name, **body}
        self.manager.handle(asked, sink := RecordingSink())
        return sink.wait()

    @property
    def open(self) -> list[Worker]:
        slots = self.pool.slots
        return [slot.worker for slot in slots if slot.is_open]  # type: ignore[misc]

    def restart(self) -> None:
        """Have the first of two workers end, and wait until the next one is there."""
        self.open[0].kill()
        wait_for(lambda: len(self.open) == 2 and len(self.started) == 3)

    def check(self) -> None:
        """Each worker that takes requests has what is listed, and is known to have it."""
        listed = {each.name: each.digest for each in self.pool.adapters.values()}
        assert self.open
        for worker in self.open:
            assert worker.adapters == worker.identity.adapters == listed


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")
    return tmp_path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, roots: Path) -> Iterator[Served]:
    made = Served(monkeypatch, roots)
    made.service.start()
    for name in ("kept", "removed", "replaced"):
        assert made.change("REGISTER", name, src="a").error is None
    made.check()
    yield made
    made.service.close()


STEPS = ("it is launched", "its engine has started", "it is identified", "it is told",
         "it has been told")  # fmt: skip
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "added": ("REGISTER", {"src": "b"}),
    "removed": ("UNREGISTER", {}),
    "replaced": ("REGISTER", {"src": "c", "load_inplace": True}),
}


@pytest.mark.parametrize("names", [[name] for name in CHANGES] + [[*CHANGES]], ids="+".join)
@pytest.mark.parametrize("step", STEPS)
def test_what_changes_at_a_step_of_a_start_the_worker_has_before_it_takes_requests(
    served: Served, step: str, names: list[str]
) -> None:
    left, seen = [*names], []

    def at(name: str) -> None:
        # While the worker is made equal for the last time, changes wait for it.
        if name == step and left and not served.pool.adapters.turn.locked():
            seen.append(name)
            kind, body = CHANGES[left[0]]
            assert served.change(kind, left.pop(0), **body).error is None
            served.check()

    served.on_step = at
    served.restart()
    assert seen
    served.check()


def test_a_change_waits_while_a_worker_is_about_to_take_requests(served: Served) -> None:
    """It reaches that worker too."""
    done: list[RecordingSink] = []
    changing: list[threading.Thread] = []

    def at(name: str) -> None:
        adapters = served.pool.adapters
        if name == "it has been told" and "second" not in adapters and not adapters.turn.locked():
            # The second look of a worker that starts tells it what has changed since the first.
            served.change("REGISTER", "second", src="b")
        if adapters.turn.locked() and not changing:
            work = lambda: done.append(served.change("REGISTER", "added", src="b"))  # noqa: E731
            changing.append(threading.Thread(target=work))
            changing[0].start()
            assert not done

    served.on_step = at
    served.restart()
    changing[0].join(HANG_SECONDS)
    assert done[0].error is None
    served.check()


def test_a_worker_that_a_dead_stub_has_left_gets_the_adapters_of_this_one(
    monkeypatch: pytest.MonkeyPatch, roots: Path
) -> None:
    """It was killed with one that was unregistered, one it half had, and one of other files."""
    made = Served(monkeypatch, roots, 1)
    made.pool.adapters = AdapterSet({"kept": "/a", "half": "/b", "files": "/c"})
    made.pool.adapters.note_files(lambda folder: f"files of {folder}")
    left = Worker("left/0", made.step, kept="files of /a", half="", files="older", gone="x")
    made.survivors.left = {0: left}  # type: ignore[dict-item]
    orders: list[str] = []
    take = left.take
    left.take = lambda order: (orders.append(order.name), take(order))  # type: ignore[method-assign]
    made.service.start()
    assert made.open == [left]
    made.check()
    assert sorted(orders) == ["files", "gone", "half"]
    made.service.close()


def test_an_adapter_that_cannot_be_pinned_does_not_keep_a_worker_from_starting(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert served.change("REGISTER", "pinned", src="b", pin=True).error is None

    class Refusing(Worker):
        def take(self, order: Any) -> None:
            self.refuses = "pinned" if order.pin else ""
            super().take(order)

    served.kind = Refusing
    served.restart()
    assert "adapter pinned is not pinned" in caplog.text
    served.check()


@pytest.mark.parametrize("index", [0, 1])
def test_an_adapter_that_one_worker_refuses_no_worker_has(served: Served, index: int) -> None:
    served.open[index].refuses = "refused"
    assert "is refused" in str(served.change("REGISTER", "refused", src="b").error)
    served.check()
    served.open[index].refuses = "replaced"
    assert served.change("REGISTER", "replaced", src="b", load_inplace=True).error is not None
    assert served.pool.adapters["replaced"].src.endswith("a")
    served.check()
