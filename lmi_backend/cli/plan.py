"""`lmi-backend plan`: what would run, and why."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from lmi_backend.cli.check import REFUSED
from lmi_backend.cli.folders import add_model, models_at
from lmi_backend.cli.planning import (
    UNREAD,
    add_machine,
    all_planned,
    devices_of,
    machine_of,
    options_of,
)
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.signature import release_and_why
from lmi_backend.options.spec import implementations
from lmi_backend.plan import EnginePlan, plan_model
from lmi_backend.plan.engine_plan import without_secrets
from lmi_backend.plan.refusals import refuse_unserved
from lmi_backend.printable import human_bytes, printable, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.memory import MemoryEstimate

_MOST_LETTERS = 400
_LINE = 3000
_NO_MEMORY = (
    "the memory of a GPU is not known, so neither is whether the model fits: --gpu-memory SIZE "
    "supposes one"
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "plan",
        help="show what would run for an LMI folder, and why",
        description="Show how a model would be distributed and served, with the reasons. The "
        "model's config.json is enough: neither a GPU nor the weights are needed. Exit status 2 if "
        "it is refused, or cannot be started here and no other machine is named.",
        examples=(
            "lmi-backend plan llama --gpus 8 --gpu-memory 80GiB --nodes 2",
            "lmi-backend plan Qwen/Qwen3-0.6B --max-model-len 4096 --json",
        ),
        takes_flags=True,
        statuses={3: "the model cannot be fetched; the plan does without its size"},
    )
    add_model(parser, "a folder with serving.properties")
    parser.add_argument("--json", action="store_true", help="print the whole plan as JSON")
    add_machine(parser)
    parser.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    models = models_at(arguments)
    machine = machine_of(arguments)
    hardware = machine.hardware()
    options = {model.name: options_of(model, machine) for model in models}
    plans = all_planned(options, hardware, _plan_one)
    if arguments.json:
        rows = [plan.as_dict() for plan in plans.values()]
        sys.stdout.write(json.dumps(rows if len(rows) > 1 else rows[0], indent=2) + "\n")
    else:
        for name, plan in plans.items():
            heading = [f"{name}:"] if len(plans) > 1 else []
            sys.stdout.writelines(
                f"{printable(line, _LINE)}\n" for line in (*heading, *_lines(plan))
            )
    if not machine.for_another_machine and any(map(_why_not_here, plans.values())):
        return REFUSED
    return UNREAD if any(plan.is_unread for plan in plans.values()) else 0


def _plan_one(options: LmiOptions, hardware: Hardware) -> EnginePlan:
    plan = plan_model(
        options, os.environ, hardware=hardware, reach="config", must_start=False, say=say
    )
    if hardware.devices and not hardware.device_memory:
        plan = replace(plan, notes=(*plan.notes, _NO_MEMORY))
    if not options.supposed_release and (release := release_and_why(options, plan.launch.python)):
        plan = replace(plan, reasons=(*plan.reasons, f"planned for {release}"))
    return without_secrets(plan, os.environ)


def _lines(plan: EnginePlan) -> Iterator[str]:
    parallel, limits, config = plan.parallel, plan.limits, plan.config
    nodes = f", each over {parallel.nodes} nodes" if parallel.nodes > 1 else ""
    yield f"engine      {plan.engine}, {parallel.mode} mode"
    yield f"model       {printable(config.model, _MOST_LETTERS) or '-'}"
    yield f"workers     {plan.num_workers} on {devices_of(plan)}{nodes}"
    yield (
        f"parallel    tensor {parallel.tensor_parallel_degree}, pipeline "
        f"{parallel.pipeline_parallel_degree}"
    )
    if plan.memory:
        yield (
            f"memory      {human_bytes(plan.memory.weights)} weights and "
            f"{_cache(plan)} KV cache per device; {plan.memory.num_tokens} tokens fit at once"
        )
        if plan.memory.overhead:
            yield f"            a step: {', '.join(_parts_of_step(plan.memory))}"
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
        yield f"argument    {name}={printable(str(value), _MOST_LETTERS)}"
    for note in plan.notes:
        yield f"note        {note}"
    for reason in plan.reasons:
        yield f"because     {reason}"
    if problem := _why_not_here(plan):
        yield f"but         {problem}"


def _why_not_here(plan: EnginePlan) -> str:
    try:
        refuse_unserved(plan)
    except ConfigurationError as error:
        return str(error)
    return ""


def _cache(plan: EnginePlan) -> str:
    memory, implementation = plan.memory, implementations().get(plan.engine)
    if memory is None:
        return ""
    least, most = (human_bytes(max(0, each.kv_cache)) for each in memory.bounds)
    is_range = least != most and implementation and implementation.counts_memory_as_vllm
    between = f" ({least} to {most})" if is_range else ""
    return f"{human_bytes(max(0, memory.kv_cache))}{between}"


def _parts_of_step(memory: MemoryEstimate) -> Iterator[str]:
    for size, what in (
        (memory.activations, "activations"),
        (memory.overhead, "outside PyTorch"),
        (memory.cuda_graphs, "CUDA graphs"),
        (memory.buffers, "buffers"),
    ):
        if size:
            yield f"{human_bytes(size)} {what}"
