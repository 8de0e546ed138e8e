"""Errors of vLLM as errors of this package."""

from __future__ import annotations

import re
from typing import Final

from lmi_backend.engines.vllm.inside import names
from lmi_backend.errors import EngineDeadError, EngineError, HttpError, LmiError, RequestError

_PATH: Final = re.compile(r"(?<!\S)/[^\s:]*\.\w+")
"""A file of a library, which says nothing to a client."""


def translated(error: Exception) -> LmiError:
    """Return our error for vLLM's, most specific first."""
    if isinstance(error, LmiError):
        return error
    if isinstance(error, names.EngineDeadError):
        return EngineDeadError(f"vLLM's engine core died: {error}")
    is_wrapped = isinstance(error, names.EngineGenerateError) or type(error) is RuntimeError
    if is_wrapped and isinstance(error.__cause__, Exception):
        # Starlette wraps what an application raises after its response has begun.
        return translated(error.__cause__)
    text = _PATH.sub("<path>", str(error))
    if isinstance(error, names.VLLMClientError | ValueError):
        return RequestError(f"is refused by vLLM: {text}", field="request")
    if isinstance(status := getattr(error, "status_code", None), int):
        return HttpError(status, text)
    return EngineError(f"vLLM failed on this request: {type(error).__name__}: {text}")
