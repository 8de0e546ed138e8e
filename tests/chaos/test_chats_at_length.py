"""Faults under chats of vLLM that `make test` does to the echo engine: by `make chaos`."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psutil
import pytest

from tests.support.answers.mixed_chats import MixedChats, note_chats
from tests.support.records.measured import Report
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, lmi, serve, write_properties


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, chat_properties: dict[str, Any]
) -> Iterator[Served]:
    """`tiny` on two workers of vLLM."""
    folder = tmp_path_factory.mktemp("two")
    workers = {"minWorkers": 2, "maxWorkers": 2, "option.parallel_loading": "true"}
    without = {name: value for name, value in chat_properties.items() if "lora" not in name}
    with serve([write_properties(folder / "tiny", without | workers)], folder) as server:
        yield server


def _start_anew(served: Served) -> None:
    words = ("drain", f"http://{served.http}", "--model", "tiny", "--worker", 0)
    assert lmi(*words, "--timeout", 120).returncode == 0


def _signal(number: signal.Signals, word: str = "") -> Callable[[Served], None]:
    def send(served: Served) -> None:
        worker = served.workers("tiny")[0]
        family = [worker, *worker.children(recursive=True)]
        _first(family, word).send_signal(number)

    return send


def _first(family: list[psutil.Process], word: str) -> psutil.Process:
    return next(each for each in family if word in " ".join(each.cmdline()))


def _kill_the_stub(served: Served) -> None:
    # No parent of a worker that has outlived another stub.
    _first(served.named("triton_python_backend_stub"), "/tiny/").kill()


FAULTS: dict[str, Callable[[Served], None]] = {
    "is killed": _signal(signal.SIGKILL),
    "is restarted (`drain --worker`)": _start_anew,
}
OF_TWO = {
    "has its engine core killed": _signal(signal.SIGKILL, "EngineCore"),
    "has its engine core hung": _signal(signal.SIGSTOP, "EngineCore"),
}


@pytest.mark.parametrize("how", [*FAULTS, *OF_TWO])
def test_one_worker_of_two(
    two: Served, report: Report, undisturbed: dict[str, set[str]], how: str
) -> None:
    _wait_until_ready(two, 2)
    chats = MixedChats.running(two)
    (FAULTS | OF_TWO)[how](two)
    note_chats(report, f"a worker of 2 {how}", chats, undisturbed)


def test_the_only_worker_is_started_anew(
    served: Served, report: Report, undisturbed: dict[str, set[str]]
) -> None:
    _wait_until_ready(served, 1)
    chats = MixedChats.running(served)
    _start_anew(served)
    note_chats(report, "a worker of 1 is restarted (`drain --worker`)", chats, undisturbed)


def test_a_stub(served: Served, report: Report, undisturbed: dict[str, set[str]]) -> None:
    _wait_until_ready(served, 1)
    chats = MixedChats.running(served)
    _kill_the_stub(served)
    note_chats(report, "a stub is killed", chats, undisturbed)


def _wait_until_ready(served: Served, count: int) -> None:
    ready = [partial(served.metric, "lmi_worker_ready", "tiny", str(n)) for n in range(count)]
    wait_for(lambda: all(is_ready() for is_ready in ready))
    # The first steps of one that has just been started may take their time.
    assert served.generate("tiny", {"text_input": "a", "max_tokens": 20})[0] == 200
