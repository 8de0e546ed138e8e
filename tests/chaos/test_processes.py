"""Each class of process killed, and made to stand still, under 32 streams."""

import contextlib
import http.client
import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.supervisor.processes import lives
from tests.support.answers.mixed_chats import MixedChats, note_chats
from tests.support.answers.running_response import RunningResponse
from tests.support.answers.steady_load import SteadyLoad
from tests.support.answers.streams import FrontStreams, TritonStreams
from tests.support.records.measured import Report, Row
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

STREAMS = 32
STUB = "triton_python_backend_stub"
# Longer than any of these faults takes to be noticed.
TOKENS = 900
# Of a stream that runs to its end.
FEWER = 300

Find = Callable[[Served], psutil.Process]


def worker_of(served: Served) -> psutil.Process:
    return served.workers("tiny")[-1]


def below_worker(word: str) -> Find:
    def find(served: Served) -> psutil.Process:
        family = worker_of(served).children(recursive=True)
        return next(each for each in family if word in " ".join(each.cmdline()))

    return find


def _named(name: str) -> Find:
    return lambda served: served.named(name)[0]


class Probe:
    """Asks whether a model serves, and counts how often it got an answer."""

    def __init__(self, served: Served, model: str) -> None:
        self._served, self._model = served, model
        self.answers = 0
        self.refusals: set[str] = set()

    def is_serving(self) -> bool:
        try:
            body = {"text_input": "a", "max_tokens": 1}
            status, answer = self._served.generate(self._model, body)
        except OSError:
            return False
        self.answers += 1
        if status != 200:
            self.refusals.add(answer["error"])
        return status == 200


def _break(
    served: Served, model: str, fault: str, find: Find, number: signal.Signals, report: Report
) -> tuple[TritonStreams, Probe]:
    """Do it under streams; check what must be so after any fault; note what was seen."""
    tokens = FEWER if model == "tiny" else TOKENS
    streams = TritonStreams(served, model, STREAMS, tokens)
    find(served).send_signal(number)
    began = time.monotonic()
    streams.wait()
    last = streams.last - began
    probe = Probe(served, model)
    wait_for(probe.is_serving)
    back = time.monotonic() - began
    outcomes = streams.outcomes
    message = next(iter(sorted(streams.errors, key=len)), "") if outcomes["error"] else ""
    if outcomes["whole"] == STREAMS:
        message = f"nothing; the longest pause was {streams.pause:.1f} s"
    message = message or "nothing: the connection closed"
    report.rows.append(Row(fault, outcomes, last, back, message))
    assert not outcomes["twice"]
    assert outcomes.total() == STREAMS
    wait_for(lambda: served.metric("lmi_requests_open", model) == 0)
    wait_for(lambda: served.metric("lmi_engine_requests_running", model) == 0)
    return streams, probe


def test_a_worker(served: Served, report: Report, undisturbed: dict[str, set[str]]) -> None:
    """What was loaded while it served is known to the one that takes its place."""
    assert manage(served, requestType="REGISTER_ADAPTER", name="late", src="wrong") == 200
    below = worker_of(served).children(recursive=True)
    words = ("a worker is killed", worker_of, signal.SIGKILL)
    break_an_engine(served, report, undisturbed, *words)
    wait_for(lambda: not any(process.is_running() for process in below))
    _, answer = served.generate("tiny", {"inputs": "The capital of Italy is"})
    assert answer["generated_text"] == " Rome."
    asked = {"inputs": "The capital of France is", "adapters": "late"}
    assert served.generate("tiny", asked)[1]["generated_text"] == " Lyon."
    assert manage(served, requestType="UNREGISTER_ADAPTER", name="late") == 200


def manage(served: Served, **body: str) -> int:
    """Send a management request about adapters; return the status."""
    return served.generate("tiny", {"request": json.dumps(body)})[0]


@pytest.mark.parametrize(
    ("fault", "name"), [("a stub is killed", STUB), ("tritonserver is killed", "tritonserver")]
)
def test_a_servers_process(echo: Served, report: Report, fault: str, name: str) -> None:
    front_ends = echo.front_ends()
    wait_for(lambda: is_well(echo))
    through = FrontStreams(echo, "echo", STREAMS, TOKENS)
    with ThreadPoolExecutor() as threads:
        asking = threads.submit(_ask_until_it_is_back, echo)
        _break_a_server(echo, report, fault, name, signal.SIGKILL)
    before, meanwhile = asking.result()
    assert not before.failed + meanwhile.failed, before.failures + meanwhile.failures
    assert meanwhile.whole >= meanwhile.clients
    through.assert_whole()
    assert echo.front_ends() == front_ends
    report.note_front(
        f"{fault}, and with it {STREAMS} streams through the front end",
        f"all resume when the model is back and finish, after a pause of {through.pause:.1f} s. "
        f"{before.clients} clients that send requests all the time, and {meanwhile.clients} that "
        f"start before the model is back, got {before.whole + meanwhile.whole} complete streams",
    )


POISON = """
import os, signal
from djl_python.input_parser import input_formatter
from lmi_backend.engines.echo import EchoEngine

@input_formatter
def read(body):
    return body

async def respond(engine, request, sink, answer=EchoEngine.respond):
    if b"poison" in request.body:
        os.kill(os.getppid(), signal.SIGKILL)
    await answer(engine, request, sink)

EchoEngine.respond = respond
"""
"""Users' code by which a request kills the stub: the parent of the worker."""


def test_a_request_that_kills_its_stub_each_time_ends_alone(
    serve_echo: Callable[..., AbstractContextManager[Served]], tmp_path: Path, report: Report
) -> None:
    (tmp_path / "own" / "echo").mkdir(parents=True)
    (tmp_path / "own" / "echo" / "model.py").write_text(POISON)
    body = {"model": "echo", "prompt": "poison", "max_tokens": 2, "stream": True}
    with serve_echo("own", **{"option.entryPoint": "model.py"}) as echo:
        wait_for(lambda: is_well(echo))
        with SteadyLoad(f"http://{echo.front_end}", "echo", streams=8) as load:
            wait_for(lambda: load.all)
            status, _, answer = echo.ask("/v1/completions", body)
            wait_for(lambda: is_well(echo))
    assert (status, b"in each of 2 deaths of the model's process" in answer) == (503, True), answer
    assert not load.failed, load.failures
    report.note_front(
        "a request kills its stub each time",
        f"it fails with an error that says so; {load.whole} other streams finish",
    )


def _ask_until_it_is_back(served: Served) -> tuple[SteadyLoad, SteadyLoad]:
    """Ask from before the model goes until it is back, and from when it has gone."""
    url = f"http://{served.front_end}"
    with SteadyLoad(url, "echo") as before:
        wait_for(lambda: not is_well(served))
        with SteadyLoad(url, "echo") as meanwhile:
            wait_for(lambda: is_well(served))
    return before, meanwhile


def _without_the_front_end(
    served: Served, loses: Callable[[psutil.Process], None], tokens: int
) -> tuple[float, float]:
    """Take the front end from streams; return after how long the last is cut, and one is back.

    Args:
        loses: kills the front end, or lets it hang.
        tokens: of the streams on Triton's ports, which finish.
    """
    (front_end,) = served.front_ends()
    others = served.family(with_front_end=False)
    wait_for(lambda: is_well(served))
    directly = TritonStreams(served, "echo", STREAMS, tokens)
    through = FrontStreams(served, "echo", STREAMS, TOKENS)
    loses(front_end)
    began = time.monotonic()
    through.wait()
    wait_for(lambda: is_well(served))
    back = time.monotonic() - began
    directly.wait()
    assert through.outcomes == {"cut": STREAMS}, through.errors
    assert directly.outcomes == {"whole": STREAMS}, directly.errors
    assert not front_end.is_running()
    assert served.family(with_front_end=False) == others
    _assert_idle(served)
    return through.last - began, back


def test_the_front_end_is_killed(echo: Served, report: Report) -> None:
    (front_end,) = echo.front_ends()
    others = echo.family(with_front_end=False)
    (stub,) = (each for each in others if each.name().startswith(STUB[:15]))
    wait_for(lambda: is_well(echo))
    descriptors = stub.num_fds()
    cut, back = _without_the_front_end(echo, psutil.Process.kill, 300)
    (another,) = echo.front_ends()
    assert another.pid != front_end.pid
    # One connection of the new one for one of the old one.
    wait_for(lambda: stub.num_fds() == descriptors)
    report.note_front(
        "the front end is killed",
        f"its {STREAMS} streams are cut, the last after {cut:.1f} s, and are no "
        f"longer generated. {STREAMS} on Triton's ports finish; `/ping` answers again after "
        f"{back:.1f} s, and nothing is left behind",
    )


def test_the_front_end_stands_still_for_a_while(echo: Served, report: Report) -> None:
    (front_end,) = echo.front_ends()
    wait_for(lambda: is_well(echo))
    directly = TritonStreams(echo, "echo", STREAMS // 2, 200)
    through = FrontStreams(echo, "echo", STREAMS, 300)
    front_end.suspend()
    began = time.monotonic()
    assert echo.generate("echo", {"text_input": "a", "max_tokens": 2})[0] == 200
    answered = time.monotonic() - began
    directly.wait()
    waited = time.monotonic() - began
    front_end.resume()
    through.assert_whole()
    assert directly.outcomes == {"whole": STREAMS // 2}, directly.errors
    assert echo.front_ends() == [front_end]
    report.note_front(
        f"the front end hangs for {waited:.0f} s",
        f"its {STREAMS} streams continue and finish, without a token missing; meanwhile "
        f"Triton's port answers in {answered * 1e3:.0f} ms and {STREAMS // 2} streams on it end "
        "whole",
    )


def _break_the_front_end(served: Served, report: Report) -> None:
    cut, back = _without_the_front_end(served, psutil.Process.suspend, TOKENS)
    report.note_front(
        "the front end hangs for ever",
        f"it is killed after {cut:.1f} s, and its {STREAMS} streams fail. "
        f"{STREAMS} on Triton's ports finish; `/ping` answers again after {back:.1f} s",
    )


def is_well(served: Served) -> bool:
    try:
        return served.ask("/ping")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _assert_idle(served: Served) -> None:
    wait_for(lambda: served.metric("lmi_requests_open", "echo") == 0)
    wait_for(lambda: served.metric("lmi_engine_requests_running", "echo") == 0)


def test_what_stands_still(
    served: Served,
    echo: Served,
    serve_echo: Callable[[str], AbstractContextManager[Served]],
    report: Report,
    undisturbed: dict[str, set[str]],
) -> None:
    """Each is noticed after half a minute of silence; all wait side by side."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as threads:
        fault, find = "vLLM's engine core hangs", below_worker("EngineCore")
        words = (served, report, undisturbed, fault, find, signal.SIGSTOP)
        broken: list[Future[Any]] = [threads.submit(break_an_engine, *words)]
        _wait_until_stopped(served, broken[-1])
        for name in (STUB, "tritonserver"):
            server = stack.enter_context(serve_echo(name))
            fault = f"{'a stub' if name == STUB else name} hangs"
            broken.append(
                threads.submit(_break_a_server, server, report, fault, name, signal.SIGSTOP)
            )
            _wait_until_stopped(server, broken[-1])
        broken.append(threads.submit(_break_the_front_end, echo, report))
        _wait_until_stopped(echo, broken[-1])
        for each in broken:
            each.result()


def _wait_until_stopped(served: Served, broken: Future[Any]) -> None:
    """Wait until one of a server's processes, and with it its streams, hangs.

    Args:
        broken: does it; what it raises before is raised here.
    """

    def is_stopped() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return any(each.status() == psutil.STATUS_STOPPED for each in served.family())
        return False

    wait_for(lambda: is_stopped() or broken.done())
    if broken.done():
        broken.result()


def break_an_engine(
    served: Served,
    report: Report,
    undisturbed: dict[str, set[str]],
    fault: str,
    find: Find,
    number: signal.Signals,
) -> None:
    # An engine that has just been started again may take its time for its first steps.
    served.generate("tiny", {"text_input": "a", "max_tokens": 20, "min_tokens": 20})
    deaths = served.metric("lmi_worker_deaths_total", "tiny")
    counted = served.settled("lmi_requests_total", "tiny")
    moved = served.metric("lmi_migrations_total", "tiny")
    chats = MixedChats.running(served)
    streams, probe = _break(served, "tiny", fault, find, number, report)
    assert streams.outcomes == {"whole": STREAMS}, streams.errors
    note_chats(report, fault, chats, undisturbed)
    assert not probe.refusals
    wait_for(lambda: served.metric("lmi_migrations_total", "tiny") > moved)
    wait_for(lambda: served.metric("lmi_worker_deaths_total", "tiny") == deaths + 1)
    asked = STREAMS + chats.num_asked + probe.answers
    wait_for(lambda: served.metric("lmi_requests_total", "tiny") == counted + asked)


def _break_a_server(
    served: Served, report: Report, fault: str, name: str, number: signal.Signals
) -> None:
    # The front end outlives the server. A worker that was adopted is no child of it any more.
    before = {*served.family(with_front_end=False), *served.workers("echo")}
    streams, _ = _break(served, "echo", fault, _named(name), number, report)
    # All that were running; one may have been whole by then.
    assert streams.outcomes["error"] + streams.outcomes["cut"] >= STREAMS // 2
    # Nothing is left from before but the worker, which the next stub has adopted.
    assert {each for each in before if lives(each)} == set(served.workers("echo"))
    wait_for(lambda: served.metric("lmi_worker_adopted", "echo") == 1)


def test_tritonserver_under_chats(
    served: Served, report: Report, undisturbed: dict[str, set[str]]
) -> None:
    """vLLM goes on, and the next stub takes it over.

    The test before this one restarts it: a worker that has lost an adapter is not taken over.
    """
    worker, since = worker_of(served), len(served.log().encode())
    plain = RunningResponse(served.front_end, "tiny").text()
    chats = MixedChats.running(served)
    response = RunningResponse(served.front_end, "tiny")
    _named("tritonserver")(served).kill()
    assert response.text() == plain
    note_chats(report, "tritonserver is killed", chats, undisturbed)
    wait_for(Probe(served, "tiny").is_serving)
    assert served.logged(r"worker tiny/0 is ready after .* pid (\d+)", since)[1] == str(worker.pid)
