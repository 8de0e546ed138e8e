"""Keep a request that is sent to another worker from pulling its prompt's KV blocks again.

With disaggregated prefill the first worker pulls them from the worker that computed the prompt,
which then frees them: by now they may be another request's. So the next worker computes the prompt
itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from lmi_backend.generation import GenerateRequest, HttpRequest

_MEMBER: Final = "do_remote_prefill"
_OWNER: Final = "kv_transfer_params"
_OUTER: Final = frozenset({_OWNER, "extra_args", "vllm_xargs", "sampling_params"})
"""Members in which vLLM looks for it: a client's tool may have a property of the same name."""


def pulls_nothing(work: GenerateRequest | HttpRequest) -> GenerateRequest | HttpRequest:
    """Return a request that pulls no KV blocks; the same one if it did not."""
    if isinstance(work, HttpRequest):
        # To look for the name alone is fast; most bodies have none.
        if _MEMBER.encode() not in work.body:
            return work
        try:
            body = json.loads(work.body)
        except (ValueError, RecursionError):  # no engine reads it either
            return work
        changed = _off(body)
        return work if changed == body else replace(work, body=json.dumps(changed).encode())
    extra = _off(work.sampling.extra)
    if extra == work.sampling.extra:
        return work
    return replace(work, sampling=replace(work.sampling, extra=extra))


def _off(value: Any, owner: str = "") -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        name: False
        if (owner, name) == (_OWNER, _MEMBER)
        else _off(item, name)
        if name in _OUTER
        else item
        for name, item in value.items()
    }
