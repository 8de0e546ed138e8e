"""Keep a request that is sent to another worker from pulling its prompt's KV blocks again.

With disaggregated prefill the first worker pulls them from the worker that computed the prompt,
which then frees them: by now they may be another request's. So the next worker computes the prompt
itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from lmi_backend.generation import GenerateRequest, HttpRequest

_NAME: Final = "do_remote_prefill"
"""vLLM's, in `kv_transfer_params`."""
_MEMBER: Final = re.compile(
    rb'("%s"\s*:\s*)(?:"(?:[^"\\]|\\.)*"|[^,}\]\s]+)' % _NAME.encode(), re.DOTALL
)
"""The member in JSON; in a string its quotes would be escaped."""


def pulls_nothing(work: GenerateRequest | HttpRequest) -> GenerateRequest | HttpRequest:
    """Return a request that pulls no KV blocks; the same one if it did not."""
    if isinstance(work, HttpRequest):
        # To look for the name alone is fast; most bodies have none.
        if _NAME.encode() not in work.body:
            return work
        body = _MEMBER.sub(rb"\1false", work.body)
        return work if body == work.body else replace(work, body=body)
    extra = _off(work.sampling.extra)
    if extra == work.sampling.extra:
        return work
    return replace(work, sampling=replace(work.sampling, extra=extra))


def _off(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: False if name == _NAME else _off(item) for name, item in value.items()}
