"""Several workers of one model: they share the load, and take over from one that dies.

Load starts them, idleness ends them. `make chaos` has two of vLLM
(tests/chaos/test_chats_at_length.py), tests/contract/test_ranks.py deaths of ranks.
"""

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.doubles.http_double import Handler, running
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served, serve, write_properties

COUNT = 200
TAKEN = "lmi_worker_requests_total"
ECHO = {"option.rolling_batch": "echo", "option.token_seconds": 0.002}
MODELS = {
    "pair": ECHO | {"minWorkers": 2, "maxWorkers": 2, "option.parallel_loading": "true"},
    "scaled": ECHO
    | {"option.start_seconds": 1, "option.max_rolling_batch_size": 2}
    | {"minWorkers": 1, "maxWorkers": 2, "max_idle_time": 1},
    "ranks": {**ECHO, "engine": "MPI", "option.tensor_parallel_degree": 2},
}


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
    """All that the collector of `server` got."""
    return []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, spans: list[Span]) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("workers")
    folders = [write_properties(folder / name, each) for name, each in MODELS.items()]
    with running(Collector, spans=spans) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with serve(folders, folder) as served:
            yield served


def shares(served: Served, model: str) -> list[float]:
    return [served.metric(TAKEN, model, str(worker)) for worker in range(2)]


def test_a_steady_load_is_shared(server: Served) -> None:
    """A worker that the machine's other work slows gets less: the shares need not be even."""
    body = {"inputs": "The capital of Italy is", "parameters": {"max_new_tokens": 8}}
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: server.generate("pair", body), range(COUNT)))
    assert {status for status, _ in answers} == {200}
    wait_for(lambda: sum(shares(server, "pair")) == COUNT)
    assert min(shares(server, "pair")) > COUNT / 4


def test_a_session_stays_with_its_worker(server: Served) -> None:
    begin = shares(server, "pair")
    for number in range(8):
        body = {"model": "pair", "prompt": f"{number} and", "max_tokens": 2}
        assert server.ask("/v1/completions", body, {"x-session-id": "one"})[0] == 200
    wait_for(lambda: sum(shares(server, "pair")) == sum(begin) + 8)
    assert sorted(now - then for now, then in zip(shares(server, "pair"), begin, strict=True)) == [
        0,
        8,
    ]


def test_a_dead_worker_takes_no_request_with_it(server: Served, spans: list[Span]) -> None:
    """A trace shows the pause of each request that it had."""
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 1000}}
    traced = partial(server.ask, "/v2/models/pair/generate", body, {"Traceparent": parent})
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(traced) for _ in range(8)]
        wait_for(lambda: server.metric("lmi_engine_requests_running", "pair") == 8)
        server.workers("pair")[0].kill()
        ended = [answer.result() for answer in answers]
    assert {status for status, *_ in ended} == {200}
    wait_for(lambda: server.metric("lmi_migrations_total", "pair") == 4)
    # The other serves on, and soon there are two again.
    assert server.generate("pair", {"inputs": "a", "parameters": {"max_new_tokens": 1}})[0] == 200
    wait_for(lambda: len(server.workers("pair")) == 2)
    own = partial(filter, lambda span: span.trace_id.hex() in parent, spans)
    wait_for(lambda: len(list(own())) == 8)
    assert {span.parent_span_id.hex() for span in own()} == {"00f067aa0ba902b7"}
    events = sorted([event.name for event in span.events] for span in own())
    assert events == [["started"]] * 4 + [["started", "paused", "resumed"]] * 4


def test_load_starts_a_worker_and_idleness_ends_it(server: Served) -> None:
    def shown(name: str) -> float:
        return server.metric(f"lmi_worker_{name}", "scaled")

    long = {"inputs": "a b", "parameters": {"max_new_tokens": 500}}
    wait_for(lambda: (len(server.workers("scaled")), shown("ready")) == (1, 1))
    with ThreadPoolExecutor(12) as clients:
        answers = [clients.submit(server.generate, "scaled", long) for _ in range(12)]
        wait_for(lambda: shown("ready") == 2)
        assert {answer.result()[0] for answer in answers} == {200}
    for worker in "01":
        wait_for(lambda one=worker: server.metric("lmi_worker_requests_total", "scaled", one))  # type: ignore[misc]
    server.logged(r"worker scaled/1 is added, now 2 of maxWorkers 2: \d requests wait")
    wait_for(lambda: len(server.workers("scaled")) == 1)
    wait_for(lambda: (shown("ready"), shown("wanted")) == (1, 1))
    server.logged("worker scaled/1 is stopped, now 1 of minWorkers 1")
    assert shown("deaths_total") == 0
    ((described,),) = (each["models"] for each in json.loads(server.ask("/models/scaled")[2]))
    workers = [{"id": 1, "status": "READY"}]
    (group,) = described["workerGroups"]
    assert group == {"minWorkers": 1, "maxWorkers": 2, "workers": workers}


def test_a_killed_rank_costs_its_streams_a_pause(server: Served) -> None:
    body = {"inputs": "a b c", "parameters": {"max_new_tokens": 3000}}
    (launcher,) = server.workers("ranks")
    members = launcher.children(recursive=True)
    (second,) = (p for p in launcher.children() if p.environ()["OMPI_COMM_WORLD_RANK"] == "1")
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(server.generate, "ranks", body)
        wait_for(lambda: server.metric("lmi_engine_requests_running", "ranks") == 1)
        second.kill()
        assert answer.result()[1]["generated_text"] == "a b c" * 1000
    assert not psutil.wait_procs(members, timeout=HANG_SECONDS)[1]
    wait_for(lambda: server.metric("lmi_worker_deaths_total", "ranks") == 1)
