"""Several workers of one model: they share the load, and take over from one that dies.

`make chaos` has two of vLLM (tests/chaos/test_chats_at_length.py).
"""

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.http_double import Handler, running
from tests.support.serving import Served, serve, write_properties
from tests.support.waiting import wait_for

COUNT = 200
TAKEN = "lmi_worker_requests_total"


class Collector(Handler):
    """Takes OTLP over HTTP, as OpenTelemetry's own collector does."""

    spans: list[Span]

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        for of_process in ExportTraceServiceRequest.FromString(data).resource_spans:
            for of_library in of_process.scope_spans:
                self.spans += of_library.spans
        self.send_response(200)
        self.end_headers()


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """All that the collector of `two` got."""
    return []


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, spans: list[Span]) -> Iterator[Served]:
    """Two workers of the echo."""
    folder = tmp_path_factory.mktemp("two")
    workers = {"minWorkers": 2, "maxWorkers": 2, "option.parallel_loading": "true"}
    echo = {"option.rolling_batch": "echo", "option.token_seconds": 0.002}
    with running(Collector, spans=spans) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with serve([write_properties(folder / "pair", echo | workers)], folder) as server:
            yield server


def shares(served: Served, model: str) -> list[float]:
    return [served.metric(TAKEN, model, str(worker)) for worker in range(2)]


def test_a_steady_load_is_shared(two: Served) -> None:
    """A worker that the machine's other work slows gets less: the shares need not be even."""
    body = {"inputs": "The capital of Italy is", "parameters": {"max_new_tokens": 8}}
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: two.generate("pair", body), range(COUNT)))
    assert {status for status, _ in answers} == {200}
    wait_for(lambda: sum(shares(two, "pair")) == COUNT)
    assert min(shares(two, "pair")) > COUNT / 4


def test_one_after_the_other_uses_both(two: Served) -> None:
    """Who had less before comes first, so the two end level."""
    begin = sum(shares(two, "pair"))
    for _ in range(40):
        two.generate("pair", {"inputs": "a", "parameters": {"max_new_tokens": 1}})
    wait_for(lambda: sum(shares(two, "pair")) == begin + 40)
    first, second = shares(two, "pair")
    assert abs(first - second) <= 2


def test_a_session_stays_with_its_worker(two: Served) -> None:
    begin = shares(two, "pair")
    for number in range(8):
        body = {"model": "pair", "prompt": f"{number} and", "max_tokens": 2}
        assert two.ask("/v1/completions", body, {"x-session-id": "one"})[0] == 200
    wait_for(lambda: sum(shares(two, "pair")) == sum(begin) + 8)
    assert sorted(now - then for now, then in zip(shares(two, "pair"), begin, strict=True)) == [
        0,
        8,
    ]


def test_conversations_find_what_their_worker_has_read(two: Served) -> None:
    """Each turn but the first is for the worker that has the earlier ones, or moves by choice."""
    hits, moves = (f"lmi_prefix_{name}_total" for name in ("hits", "moves"))
    begin = two.metric(hits, "pair") + two.metric(moves, "pair")

    def talk(number: int) -> None:
        prompt = f"I am number {number}. " * 40
        for turn in range(4):
            body = {"model": "pair", "prompt": prompt, "max_tokens": 8}
            assert two.ask("/v1/completions", body)[0] == 200
            prompt += f"And {turn}? " * 40

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(talk, range(6)))
    wait_for(lambda: two.metric(hits, "pair") + two.metric(moves, "pair") >= begin + 18)
    assert min(shares(two, "pair")) > 0


def test_a_dead_worker_takes_no_request_with_it(two: Served, spans: list[Span]) -> None:
    """A trace shows the pause of each request that it had."""
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 1000}, "traceparent": parent}
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(two.generate, "pair", body) for _ in range(8)]
        wait_for(lambda: two.metric("lmi_engine_requests_running", "pair") == 8)
        two.workers("pair")[0].kill()
        ended = [answer.result() for answer in answers]
    assert {status for status, _ in ended} == {200}
    wait_for(lambda: two.metric("lmi_migrations_total", "pair") == 4)
    # The other serves on, and soon there are two again.
    assert two.generate("pair", {"inputs": "a", "parameters": {"max_new_tokens": 1}})[0] == 200
    wait_for(lambda: len(two.workers("pair")) == 2)
    own = partial(filter, lambda span: span.trace_id.hex() in parent, spans)
    wait_for(lambda: len(list(own())) == 8)
    assert {span.parent_span_id.hex() for span in own()} == {"00f067aa0ba902b7"}
    events = sorted([event.name for event in span.events] for span in own())
    assert events == [["started"]] * 4 + [["started", "paused", "resumed"]] * 4
