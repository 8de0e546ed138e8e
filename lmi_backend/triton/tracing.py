"""Where spans go: the standard variables of OpenTelemetry say it.

Without an endpoint, nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Final

from lmi_backend.machine import pip_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.serving.spans import RequestTracer

_log = logging.getLogger(__name__)

_EXPORTERS: Final = {"grpc": "grpc", "http/protobuf": "http"}
"""A protocol to the last part of its exporter's package."""


def tracer_of(model: str, environment: Mapping[str, str]) -> RequestTracer | None:
    """Return what makes a model's spans; None if none are wanted, or can be made."""

    def setting(name: str) -> str:
        return (
            environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "")
            or environment.get(f"OTEL_EXPORTER_OTLP_{name}", "")
        ).strip()

    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = (environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp").split(",")
    if is_off or "otlp" not in map(str.strip, exporters) or not (endpoint := setting("ENDPOINT")):
        return None
    protocol = setting("PROTOCOL") or "http/protobuf"
    if protocol not in _EXPORTERS:
        accepted = ", ".join(_EXPORTERS)
        _log.warning("OTEL_EXPORTER_OTLP_PROTOCOL=%s: no spans; accepted: %s", protocol, accepted)
        return None
    package = f"opentelemetry.exporter.otlp.proto.{_EXPORTERS[protocol]}.trace_exporter"
    try:
        module = importlib.import_module("lmi_backend.serving.spans")
        made: RequestTracer = module.RequestTracer(
            model, importlib.import_module(package).OTLPSpanExporter()
        )
    except ValueError as error:
        _log.warning("no spans go to %s: %s", endpoint, error)
        return None
    except ImportError as error:
        _log.warning("no spans go to %s: %s; %s", endpoint, error, pip_command("tracing"))
        return None
    _log.info("%s: the span of each request goes to %s", model, endpoint)
    return made
