"""The engine of a worker, with what stands before it."""

from __future__ import annotations

from lmi_backend.engines.protocol import Engine, TemplateEngine
from lmi_backend.engines.registry import create_engine
from lmi_backend.ipc import messages as msg
from lmi_backend.options.engine_spec import CUSTOM


def build_engine(start: msg.Start) -> Engine:
    """Build the engine, and the user's code around it."""
    inner = create_engine(start.engine, start.config) if start.engine != CUSTOM else None
    if isinstance(inner, TemplateEngine):
        from lmi_backend.worker.openai_engine import OpenAiEngine  # noqa: PLC0415

        inner = OpenAiEngine(start.config, inner)
    if inner is not None and not start.config.runs_code:
        return inner
    # Few models have code of their own.
    from lmi_backend.worker.handlers.engine import CustomEngine  # noqa: PLC0415

    return CustomEngine(start.config, inner)
