"""What is handed on under the engine's own names, to the engine and to its HTTP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmi_backend.options.argument_types import value_of
from lmi_backend.options.classification import LACKS, classify_unknown, turned
from lmi_backend.options.signature import signature_of
from lmi_backend.options.spec import PREFIX

if TYPE_CHECKING:
    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import Explanation
    from lmi_backend.plan.hardware import Hardware


_ON = ("true", "1")
_GPUS_ALONE: Final = {
    "enable_cumem_allocator": _ON,
    "enable_eplb": _ON,
    "enable_mamba_cache_stochastic_rounding": _ON,
    "kda_prefill_backend": ("flashkda", "fused"),
}
"""Argument of vLLM to the texts at which it does not start on a CPU."""


def passed_on(
    options: LmiOptions, python: str, hardware: Hardware, report: Explanation
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return what the engine reads as text, and the arguments of its own HTTP server.

    Raises:
        OptionError: neither has such an argument, or it does not take the text, or not here.
    """
    known = signature_of(options, python)
    texts: dict[str, str] = {}
    served: dict[str, Any] = {}
    for name, status in classify_unknown(options, python).items():
        setting = options.passthrough[name]
        if status.word == "refused":
            raise setting.error(status.detail)
        if not hardware.devices and setting.value.lower() in _GPUS_ALONE.get(name, ()):
            raise setting.error("is refused by vLLM on a CPU", "another value, or GPUs")
        if status.word != "passed":
            report.notes.append(f"{setting} is ignored: {status.detail}")
            continue
        if LACKS in status.detail:
            report.notes.append(f"{setting} is passed on as {status.detail}")
        target, text = turned(known, name, setting.value)
        if target != name and target in options.passthrough:
            problem = f"contradicts {PREFIX}{target}: both set it"
            raise setting.error(problem)
        if known and target in known.server and target not in known.arguments:
            served[target] = value_of(known.server[target].type, text)
        else:
            texts[target] = text
    return texts, served
