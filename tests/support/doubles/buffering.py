"""Front ends over a real endpoint, whose workers answer as a script says."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmi_backend.engine_config import Context
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, Frame, FrameDecoder
from tests.support.doubles.endpoints import die, open_endpoint
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.scripted_model import Scripted
from tests.support.run.waiting import wait_for

NAME = "echo"
Order = msg.Submit | msg.SubmitHttp
Script = Callable[[Order], Sequence[msg.FromWorker]]
_PAUSE_SECONDS = 0.001
"""So that what follows does not come in the same turn of a front end's loop."""


class ScriptedWorkers(IdleWorkers):
    """Workers that answer each request as a script says, in a thread of its own."""

    def __init__(self, model: "BufferingModel") -> None:
        self._model = model

    def send_frame(self, frame: Frame) -> None:
        decoder: FrameDecoder[Order] = FrameDecoder(Order, limit=LARGEST_FRAME)
        orders = [order for part in frame for order in decoder.feed(part)]
        for order in orders:
            self._model.orders.append(order)
            threading.Thread(target=self._answer, args=(order,)).start()

    def _answer(self, order: Order) -> None:
        with self._model.opening:
            endpoint = self._model.endpoint
        for message in self._model.script(order):
            endpoint.service.on_messages([message])
            time.sleep(_PAUSE_SECONDS)


class BufferingModel:
    """A model whose answers are buffered; the endpoint is real."""

    def __init__(self, **info: Any) -> None:
        self.info = {"resume_window": 600, "longest_token": 10} | info
        self.script: Script = lambda order: []
        self.orders: list[Any] = []
        """What its workers got."""
        self.opening = threading.Lock()
        """Held until the endpoint is known; its clients may be there sooner."""
        self.open()

    def open(self) -> None:
        """Begin to listen, as a process of its own."""
        context = Context(has_lora=True)
        with self.opening:
            self.endpoint = open_endpoint(NAME, ScriptedWorkers(self), context, **self.info)
        self.endpoint.service.cancellation.start()
        self.endpoint.service.senders.start()

    def close(self) -> None:
        """End as a model that is unloaded."""
        self.endpoint.close()
        self._stop()

    def die(self) -> None:
        """End as a process that is killed."""
        die(self.endpoint)
        self._stop()

    def _stop(self) -> None:
        service = self.endpoint.service
        service.cancellation.stop()
        service.senders.stop()

    def say(self, number: int, *chunks: Any) -> None:
        self.endpoint.service.on_messages([msg.Output(number, chunk) for chunk in chunks])

    def counts(self) -> dict[str, int]:
        return self.endpoint.buffered.counts()

    def open_requests(self) -> int:
        return self.endpoint.service.snapshot().open


class Front(Scripted):
    """A front end that finds the one model of a folder."""

    def __init__(self, base: Path, **settings: Any) -> None:
        super().__init__(base, **settings)
        self.models.clear()

    def wait(self) -> None:
        """Wait until it knows the model."""
        wait_for(lambda: [each.name for each in self.front_end.models.all()] == [NAME])


@contextmanager
def buffering_model(**info: Any) -> Iterator[BufferingModel]:
    model = BufferingModel(**info)
    try:
        yield model
    finally:
        model.close()
