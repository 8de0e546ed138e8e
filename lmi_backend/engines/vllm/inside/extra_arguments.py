"""What vLLM's core reads of a request's extra arguments, looked at before the core is sent it.

A client names them as it likes in `vllm_xargs`. The core takes some for its own, and does not look
at their kinds: it exits, with all its requests, where a connector or a diffusion model meets text.
"""

from __future__ import annotations

from typing import Any, Final

from lmi_backend.errors import RequestError

_OBJECTS: Final = ("kv_transfer_params", "ec_transfer_params")
_NUMBERS: Final = ("diffusion_canvas_length", "diffusion_max_steps")
_MOST: Final = 1 << 20
"""Far more than a canvas has tokens, or takes steps."""


def check(params: Any) -> None:
    """Refuse extra arguments that the core takes for its own, of another kind.

    Args:
        params: the SamplingParams of a request.

    Raises:
        RequestError: one is of another kind.
    """
    extra = getattr(params, "extra_args", None)
    for name, value in extra.items() if isinstance(extra, dict) else ():
        if value is None:
            continue
        if name in _OBJECTS and not isinstance(value, dict):
            problem, accepted = "is not an object", "an object"
        elif name in _NUMBERS and not (type(value) is int and 0 <= value <= _MOST):
            problem, accepted = "is no such number", f"a whole number, 0 to {_MOST}"
        else:
            continue
        raise RequestError(problem, field=f"vllm_xargs.{name}", value=value, accepted=accepted)
