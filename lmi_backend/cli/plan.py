"""`lmi-backend plan`: what would run, and why."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lmi_backend.cli.folders import model_folder
from lmi_backend.cli.planning import add_hardware, hardware_of
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import load_options
from lmi_backend.plan import EnginePlan, plan_model
from lmi_backend.plan.memory_report import memory_lines
from lmi_backend.plan.refusals import refuse_unserved
from lmi_backend.plan.shown import without_secrets
from lmi_backend.printable import say
from lmi_backend.units import human_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from _typeshed import DataclassInstance

    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.memory import MemoryEstimate

_BAR_WIDTH = 48

T = TypeVar("T", bound="DataclassInstance")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "plan",
        help="show what would run for an LMI folder, and why",
        description="Show how a model would be distributed and served, with the reasons. The "
        "model's config.json is enough: neither a GPU nor the weights are needed.",
        epilog="lmi-backend plan FOLDER --gpus 8 --gpu-memory 80GiB --nodes 2",
    )
    parser.add_argument("path", type=Path, help="folder with serving.properties or config.json")
    parser.add_argument("--json", action="store_true", help="print the whole plan as JSON")
    parser.add_argument(
        "--explain-memory",
        action="store_true",
        help="print what takes a GPU's memory, in the words of vLLM's log",
    )
    add_hardware(parser)
    parser.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    options = load_options(model_folder(arguments.path), os.environ)
    hardware = hardware_of(arguments)
    plan = plan_model(options, os.environ, hardware=hardware, reach="config", say=say)
    shown = without_secrets(plan, os.environ)
    if arguments.explain_memory:
        sys.stdout.write("".join(f"{line}\n" for line in _explained(plan, hardware)))
        return 0
    if arguments.json:
        sys.stdout.write(json.dumps(shown.as_dict(), indent=2) + "\n")
        return 0
    sys.stdout.write("".join(f"{line}\n" for line in _lines(shown)))
    return 0


def _explained(plan: EnginePlan, hardware: Hardware) -> Iterator[str]:
    """Yield what vLLM would log of its memory.

    Raises:
        ConfigurationError: another engine runs, or model or device are not known.
    """
    if plan.engine != "vllm":
        raise ConfigurationError(
            f"--explain-memory: the engine is {plan.engine}; accepted: a model that vLLM serves"
        )
    if plan.memory is None:
        raise ConfigurationError(
            "--explain-memory: the model's config.json or the devices' memory is not known; give "
            "--gpus and --gpu-memory, or VLLM_CPU_KVCACHE_SPACE on a CPU"
        )
    release = ".".join(map(str, plan.memory.release))
    yield f"estimated, as vLLM {release} would log it on the device with the least left:"
    yield from memory_lines(plan.memory, hardware.device_memory if hardware.devices else 0)


def _lines(plan: EnginePlan) -> Iterator[str]:
    parallel, limits, config = plan.parallel, plan.limits, plan.config
    devices = "; ".join(",".join(group) or "cpu" for group in parallel.device_groups)
    nodes = f", each over {parallel.nodes} nodes" if parallel.nodes > 1 else ""
    yield f"engine      {plan.engine}, {parallel.mode} mode"
    yield f"model       {config.model or '-'}"
    yield f"workers     {parallel.workers} on {devices}{nodes}"
    yield (
        f"parallel    tensor {parallel.tensor_parallel_degree}, pipeline "
        f"{parallel.pipeline_parallel_degree}"
    )
    if plan.memory:
        yield (
            f"memory      {human_bytes(plan.memory.weights)} weights and "
            f"{human_bytes(plan.memory.kv_cache)} KV cache per device; "
            f"{plan.memory.num_tokens} tokens fit at once"
        )
        if plan.memory.overhead:
            yield f"            {_bar(plan.memory)}  weights #, a step =, KV cache -"
    yield (
        f"requests    {plan.max_requests} at once, {limits.queue_size} queued, "
        f"{limits.request_timeout} s each"
    )
    if parallel.mode == "mpi":
        where = f" on {', '.join(parallel.hosts)}" if parallel.hosts else ""
        launcher = parallel.mpirun or "mpirun"
        yield f"launcher    {launcher}, {parallel.processes} ranks a worker{where}"
    yield f"interpreter {plan.launch.python}"
    for name, value in {**config.arguments, **config.passthrough}.items():
        yield f"argument    {name}={value}"
    for note in plan.notes:
        yield f"note        {note}"
    for reason in plan.reasons:
        yield f"because     {reason}"
    try:
        refuse_unserved(plan)
    except ConfigurationError as error:
        yield f"but         {error}"


def _bar(memory: MemoryEstimate) -> str:
    """Draw what takes a device's memory, as far as the engine may use it."""
    step, cache = memory.step, max(0, memory.kv_cache)
    whole = memory.weights + step + cache
    weights = round(_BAR_WIDTH * memory.weights / whole)
    cached = round(_BAR_WIDTH * cache / whole)
    return f"[{'#' * weights}{'=' * (_BAR_WIDTH - weights - cached)}{'-' * cached}]"
