"""A request is one span, from its arrival to its last response, through a dead worker."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from lmi_backend.serving import spans
from lmi_backend.serving.spans import RequestTracer
from lmi_backend.triton.tracing import tracer_of
from tests.support.doubles.service_bench import Bench, Sink
from tests.support.run.waiting import HANG_SECONDS, wait_for

TRACE, PARENT = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
HEADERS = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01", "tracestate": "a=b"}
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


class Traced(Bench):
    """A service whose requests are traced."""

    def __init__(self, count: int = 1, exporter: Any = None, **settings: Any) -> None:
        self.exporter = exporter or InMemorySpanExporter()
        super().__init__(count, tracer=RequestTracer("m", self.exporter), **settings)

    def spans(self) -> tuple[ReadableSpan, ...]:
        """End the service, and return what was sent to the collector until then."""
        self.service.close()
        return tuple(self.exporter.get_finished_spans())


def test_an_answer_is_a_span_whose_parent_is_the_clients() -> None:
    bench = Traced()
    bench.service.submit((GenerateRequest("a", trace_headers=HEADERS),), Sink("mine"))
    bench.settle()
    (number,) = bench.open()
    sent = bench.workers.sent[number].requests[0].trace_headers
    bench.answer(number)
    (span,) = bench.spans()
    assert span.name == "text_completion m"
    assert span.parent is not None
    assert span.context is not None
    assert (span.parent.trace_id, span.parent.span_id) == (TRACE, PARENT)
    # What the engine traces hangs below the span.
    assert sent == HEADERS | {"traceparent": f"00-{TRACE:032x}-{span.context.span_id:016x}-01"}
    assert span.attributes is not None
    assert span.status.is_ok
    assert span.attributes["lmi.request_id"] == "mine"
    assert span.attributes["gen_ai.usage.output_tokens"] == 1
    assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert float(str(span.attributes["gen_ai.server.time_to_first_token"])) > 0
    assert [event.name for event in span.events] == ["started"]


def test_a_call_names_its_operation() -> None:
    bench = Traced()
    for path in ("/v1/chat/completions", "/v1/rerank", "/v1/completions"):
        bench.service.submit(HttpRequest(path, b"{}", {"accept": "*/*"}), Sink())
    sent = [message.request.headers for message in bench.workers.sent.values()]
    assert all(each.keys() == {"accept", "traceparent"} for each in sent)
    bench.settle()
    bench.answer(*bench.open())
    names = [span.name for span in bench.spans()]
    assert names == ["chat m", "rerank m", "text_completion m"]


def test_a_pause_is_an_event() -> None:
    bench = Traced(2, migration_timeout=None)
    bench.submit()
    bench.die()
    bench.answer(*bench.open())
    (span,) = bench.spans()
    events = {event.name: event.attributes for event in span.events}
    assert list(events) == ["started", "paused", "resumed"]
    assert (events["started"], events["resumed"]) == ({"worker": "model/0"}, {"worker": "model/1"})
    assert span.status.is_ok


def test_a_refusal_is_a_span_with_its_code() -> None:
    bench = Traced(waiting=0, capacity=1)
    bench.submit()
    with pytest.raises(UnavailableError):
        bench.submit()
    bench.settle()
    bench.answer(*bench.open())
    refused, *answered = bench.spans()
    assert refused.attributes is not None
    assert not refused.status.is_ok
    assert refused.attributes["error.type"] == "unavailable"
    assert all(each.status.is_ok for each in answered)


def test_a_collector_that_hangs_keeps_no_model_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_LAST_SECONDS", 0.01)
    may_go_on = threading.Event()

    class Hanging(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            may_go_on.wait(HANG_SECONDS)
            return super().export(spans)

    bench = Traced(exporter=Hanging())
    bench.submit()
    bench.settle()
    bench.answer(*bench.open())
    assert bench.spans() == ()
    may_go_on.set()
    wait_for(bench.exporter.get_finished_spans)


def test_a_span_has_nothing_that_a_client_wrote() -> None:
    bench = Traced()
    deep = {"extra": [[]]}
    for _ in range(600):
        deep = {"a secret prompt": deep}
    request = GenerateRequest("a secret prompt", sampling=Sampling(extra=deep))
    with pytest.raises(RequestError):
        bench.service.submit((request,), Sink())
    bench.service.submit((GenerateRequest("a secret prompt"),), Sink())
    bench.die()
    refused, failed = bench.spans()
    assert "secret" not in refused.to_json() + failed.to_json()
    assert (refused.status.description, failed.status.description) == (None, "it died")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        ENDPOINT | {"OTEL_SDK_DISABLED": "true"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
        ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        ENDPOINT | {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "99999"},
    ],
)
def test_no_spans_are_made_where_none_are_wanted(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert tracer_of("m", environment) is None


def test_what_is_not_installed_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The exporter for gRPC is an extra of its own."""
    assert tracer_of("m", ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None
    assert "pip install" in caplog.text
