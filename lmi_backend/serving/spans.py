"""A span of OpenTelemetry for each request, from its arrival in the stub to its last response.

Names follow OpenTelemetry's conventions for generative AI. Needs the extra `tracing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lmi_backend.clients.request import HEADERS, with_trace
from lmi_backend.errors import HttpError, QuotedError, RequestError
from lmi_backend.generation import HttpRequest
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from lmi_backend.errors import LmiError
    from lmi_backend.ipc import messages as msg

_LAST_SECONDS: Final = 1.0
_COMPLETION: Final = "text_completion"
_OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/embeddings": "embeddings",
    "/v2/embed": "embeddings",
    "/v1/completions": _COMPLETION,
    "/inference/v1/generate": _COMPLETION,
}
"""Of a path; any other has the name of its last part."""


class RequestTracer:
    """Makes one model's spans, and sends them from a thread of the library."""

    def __init__(self, model: str, exporter: SpanExporter) -> None:
        named = Resource.create({"service.name": "lmi-backend"})
        self._provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("lmi_backend")
        self._propagator = TraceContextTextMapPropagator()
        self._model = model

    def begin(self, work: msg.Work, request_id: str) -> tuple[msg.Work, RequestSpan]:
        """Begin a request's span; return the request, as the parent of the engine's spans has it.

        A trace that the request names is the span's own parent.
        """
        if isinstance(work, HttpRequest):
            operation = _OPERATIONS.get(work.path) or work.path.rpartition("/")[2]
            headers = work.headers
        else:
            operation, headers = _COMPLETION, work[0].trace_headers
        parent = self._propagator.extract({n: headers[n] for n in HEADERS if n in headers})
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": self._model,
            "lmi.request_id": request_id,
        }
        name = f"{operation} {self._model}"
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        own: dict[str, str] = {}
        self._propagator.inject(own, set_span_in_context(span))
        return with_trace(work, own), RequestSpan(span)

    def close(self) -> None:
        """Send what was not sent yet, as far as that takes a moment.

        The library tries for ten seconds and more where the collector hangs.
        """
        last = guarded_thread("lmi-spans", self._provider.shutdown)
        last.start()
        last.join(_LAST_SECONDS)


class RequestSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def event(self, name: str, **attributes: str | int) -> None:
        self._span.add_event(name, attributes)

    def answered(self, first_seconds: float, num_prompt_tokens: int, num_tokens: int) -> None:
        """Note what its answers were, once they are all sent."""
        self._span.set_attribute("gen_ai.usage.input_tokens", num_prompt_tokens)
        self._span.set_attribute("gen_ai.usage.output_tokens", num_tokens)
        self._span.set_attribute("gen_ai.server.time_to_first_token", first_seconds)

    def end(self, outcome: str, error: LmiError | None = None) -> None:
        """End with the last response, or with an error; a request that is refused has one too."""
        if error is None:
            self._span.set_attribute("gen_ai.response.finish_reasons", [outcome])
        else:
            self._span.set_attribute("error.type", outcome)
            # The text of a refusal may quote what a client wrote.
            quotes = isinstance(error, RequestError | QuotedError | HttpError)
            text = None if quotes else str(error)
            self._span.set_status(Status(StatusCode.ERROR, text))
        self._span.end()
