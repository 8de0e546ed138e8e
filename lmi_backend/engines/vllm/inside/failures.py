"""Errors of vLLM as errors of this package."""

from __future__ import annotations

from lmi_backend.engines.vllm.inside import names
from lmi_backend.errors import EngineDeadError, EngineError, LmiError, RequestError


def translated(error: Exception) -> LmiError:
    """Return our error for vLLM's, most specific first."""
    if isinstance(error, LmiError):
        return error
    if isinstance(error, names.EngineDeadError):
        return EngineDeadError(f"vLLM's engine core died: {error}")
    if isinstance(error, names.EngineGenerateError):
        cause = error.__cause__
        if isinstance(cause, names.VLLMClientError | ValueError):
            return RequestError(f"is refused by vLLM: {cause}", field="request")
        return EngineError(f"vLLM failed on this request: {cause or error}")
    if isinstance(error, names.VLLMClientError | ValueError):
        return RequestError(f"is refused by vLLM: {error}", field="request")
    return EngineError(f"vLLM failed on this request: {type(error).__name__}: {error}")
