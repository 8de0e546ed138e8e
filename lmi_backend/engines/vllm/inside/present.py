"""Which fast paths the installed vLLM has, read from its source before it is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from lmi_backend.engines.vllm.inside.entries import FastPath, Need
from lmi_backend.engines.vllm.inside.names import NAMES, homes
from lmi_backend.engines.vllm.inside.source import installed, problem_of_call
from lmi_backend.options.signature import installed_version
from lmi_backend.options.versions import is_later

_CALLED_IN: Final = {
    "GPUModelRunner._bookkeeping_sync": "vllm.v1.worker",
    "PunicaWrapperCPU.add_lora_logits": "vllm.lora",
}
"""Methods that are replaced in their class, for a core, and the package that calls them."""


def missing(names: Iterable[str]) -> list[str]:
    """Return which names this vLLM surely lacks, or cannot be called by as they are here.

    Args:
        names: as `FastPath.names` and `Need.names` have them. What is not vLLM's own is left out.
    """
    return [problem for name in names for problem in [_problem(name)] if problem]


def missing_of(entries: Iterable[FastPath | Need]) -> dict[str, list[str]]:
    """Return what each fast path or need lacks."""
    return {entry.name: missing(entry.names) for entry in entries}


def _problem(text: str) -> str:
    path, has_arguments, arguments = text.rstrip(")").partition("(")
    key, _, member = path.partition(".")
    if key not in NAMES or path.endswith("?"):
        return ""
    found = homes(key)
    if not found:
        return path if NAMES[key].instead is ... and not _is_of_later(NAMES[key].since) else ""
    module, name = found[0]
    if name == "*":
        return "" if installed().definition(module, member) else path
    if member and installed().lacks(module, name, member):
        return path
    function = installed().function(module, f"{name}.{member}" if member else name)
    if has_arguments and function is not None:
        problem = problem_of_call(function, arguments.split())
        return f"{path} (which {problem})" if problem else ""
    return _missed_replacement(path)


def _missed_replacement(path: str) -> str:
    """Return a method that nothing calls in the package where another stands in for it."""
    method = path.rpartition(".")[2]
    package = _CALLED_IN.get(path, "")
    if package and not installed().calls(package, method):
        return f"{path} (which nothing in {package} calls)"
    return ""


def _is_of_later(since: str) -> bool:
    """Tell whether a name is only of releases after the installed one."""
    return bool(since) and is_later(since, installed_version("vllm", sys.executable)) is True
