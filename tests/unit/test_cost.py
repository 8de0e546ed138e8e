"""What a token costs, counted, not timed: function calls, frames, responses and tensors.

The bounds are what was counted on CPython 3.11 and 3.12, and a tenth more. A change that costs
more must say so here; benchmarks/README.md says what such counts mean in microseconds.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.generation import Delta, GenerateRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.repository.variants import MAIN
from lmi_backend.schema.vllm import VllmReply
from lmi_backend.serving.limits import Limits
from lmi_backend.serving.service import Service
from lmi_backend.worker.coalescer import Coalescer
from tests.support.idle_workers import IdleWorkers

STREAMS = 64
STEPS = 60
MARGIN = 1.1


class Calls:
    """Counts calls of functions, Python's and C's, of this thread."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _see(self, frame: Any, event: str, argument: Any) -> None:
        self.count += event in ("call", "c_call")


def _delta(step: int) -> Delta:
    is_last = step == STEPS - 1
    return Delta("word ", 1, "length" if is_last else None, num_prompt_tokens=5)


@pytest.mark.parametrize(
    ("together", "calls_a_token", "frames_a_step"),
    [
        pytest.param(1, 11.3, 1, id="each token alone"),
        pytest.param(10, 6.0, 0.12, id="ten together"),
    ],
)
async def test_what_a_token_costs_the_worker(
    together: int, calls_a_token: float, frames_a_step: float
) -> None:
    frames: list[bytes] = []
    coalescer = Coalescer(frames.append)
    # No clock: where tokens wait for each other, the test ticks.
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=0 if together == 1 else 1e9))
    for number in range(STREAMS):
        coalescer.open(number)
    calls = Calls()
    for step in range(STEPS):
        deltas = [_delta(step) for _ in range(STREAMS)]
        with calls.counted():
            for number, delta in enumerate(deltas):
                coalescer.add(number, delta)
            if together > 1 and step % together == 0:
                coalescer._tick()
            coalescer.flush()
        await asyncio.sleep(0)
    assert len(frames) <= frames_a_step * STEPS + 1
    assert calls.count / (STREAMS * STEPS) <= calls_a_token * MARGIN


class Sender:
    """Counts what Triton would get."""

    responses = 0
    tensors = 0

    def send(self, response: Any, flags: int) -> None:
        Sender.responses += 1
        Sender.tensors += len(response.output_tensors)


@pytest.fixture
def make_sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    fakes = Path(__file__).resolve().parents[1] / "fakes" / "triton"
    monkeypatch.syspath_prepend(str(fakes))
    ours = ("triton_python_backend_utils", "lmi_backend.triton.codec", "lmi_backend.triton.sink")
    before = {name: sys.modules.pop(name, None) for name in ours}
    from lmi_backend.triton.codec import Codec  # noqa: PLC0415  needs the double
    from lmi_backend.triton.sink import TritonSink  # noqa: PLC0415

    codec = Codec(MAIN)
    Sender.responses = Sender.tensors = 0
    request = SimpleNamespace(get_response_sender=Sender, request_id=lambda: "")
    yield lambda: TritonSink(
        request, VllmReply(1, stream=True, prefix="", outputs=frozenset()), codec, is_decoupled=True
    )
    for name, module in before.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module


def test_what_a_response_costs_the_stub(make_sink: Callable[[], Any]) -> None:
    service = Service(IdleWorkers(), Limits(running=STREAMS, waiting=0, seconds=60))  # type: ignore[arg-type]
    for _ in range(STREAMS):
        service.submit((GenerateRequest("x"),), make_sink())
    decoder: FrameDecoder[Any] = FrameDecoder(msg.FromWorker, limit=1 << 24)
    calls = Calls()
    for step in range(STEPS):
        frame = encode([msg.Output(number + 1, _delta(step)) for number in range(STREAMS)])
        with calls.counted():
            service.on_messages(decoder.feed(frame))
        # The sender's work, on this thread: its loop ends at None.
        service._ready.put(None)
        with calls.counted():
            service._send_ready()
    assert Sender.responses == STREAMS * STEPS
    # No response without text, none with an output nobody asked for.
    assert Sender.tensors == Sender.responses
    assert calls.count / Sender.responses <= 45.5 * MARGIN


def test_tokens_that_came_meanwhile_share_a_response(make_sink: Callable[[], Any]) -> None:
    service = Service(IdleWorkers(), Limits(running=STREAMS, waiting=0, seconds=60))  # type: ignore[arg-type]
    for _ in range(STREAMS):
        service.submit((GenerateRequest("x"),), make_sink())
    for step in range(STEPS):
        service.on_messages([msg.Output(number + 1, _delta(step)) for number in range(STREAMS)])
    service._ready.put(None)
    service._send_ready()
    assert Sender.responses == STREAMS
