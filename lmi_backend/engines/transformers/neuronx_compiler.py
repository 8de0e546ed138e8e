"""What Neuron's compiler is told through its environment."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any


def compiler_environment(arguments: dict[str, Any], environment: MutableMapping[str, str]) -> None:
    """Say in the variables of Neuron's compiler what it reads nowhere else."""
    compiler = arguments.get("compiler", {})
    flags = [environment.get("NEURON_CC_FLAGS", "")]
    if level := compiler.get("optlevel"):
        flags.append(f"-O{level}")
    if compiler.get("mixed_precision_accumulation"):
        flags.append("--enable-mixed-precision-accumulation")
    if compiler.get("saturate_infinity"):
        flags.append("--enable-saturate-infinity")
    environment["NEURON_CC_FLAGS"] = " ".join(filter(None, flags))
    if url := arguments.get("compile_cache_url"):
        environment["NEURON_COMPILE_CACHE_URL"] = str(url)
