"""What the commands share: from a path to options and plan."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lmi_backend.cli.folders import Model
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import LmiOptions, load_options, resolve_options
from lmi_backend.plan import EnginePlan, plan_model
from lmi_backend.plan.hardware import Hardware, detect_hardware
from lmi_backend.plan.holdings import Holding
from lmi_backend.plan.refusals import refuse_unserved
from lmi_backend.plan.reservations import Reservations
from lmi_backend.plan.together import plan_together
from lmi_backend.printable import printable, say

_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}
_MOST = 4096
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kmgt])(?:i?b)?", re.IGNORECASE | re.ASCII)


def options_of(model: Model) -> LmiOptions:
    """Return the options of a model.

    Raises:
        ConfigurationError: one of them cannot be used.
    """
    if model.has_file:
        return load_options(model.folder, os.environ)
    return resolve_options([], os.environ, folder=model.folder)


def served_plan(model: Model) -> tuple[LmiOptions, EnginePlan]:
    """Return options and plan of a model that this release can run on this machine, alone.

    What it does not do as written is said.

    Raises:
        ConfigurationError: it cannot be run.
    """
    options = options_of(model)
    plan = plan_model(options, os.environ)
    refuse_unserved(plan)
    for note in plan.notes:
        say(f"{model.folder.name}: {note}")
    return options, plan


def served_plans(
    models: Sequence[Model],
) -> Iterator[tuple[Model, LmiOptions, EnginePlan, Holding]]:
    """Yield each of some models that are served together, as `served_plan` does, and what it gets.

    Raises:
        ConfigurationError: one cannot be run, or not beside the others and what is already held.
    """
    options = {model.name: options_of(model) for model in models}
    hardware = detect_hardware(os.environ)
    hardware = replace(hardware, holdings=held_devices(hardware))
    plans = plan_together(options, hardware, served_beside)
    problems = {name: made for name, made in plans.items() if not isinstance(made, EnginePlan)}
    if problems and len(models) > 1:
        raise ConfigurationError(*(f"{name}: {problem}" for name, problem in problems.items()))
    for model in models:
        plan = plans[model.name]
        if not isinstance(plan, EnginePlan):
            raise plan
        if len(models) > 1 and any(plan.parallel.device_groups):
            groups = "; ".join(",".join(group) for group in plan.parallel.device_groups)
            share = (
                f", {plan.parallel.device_share:.0%} of each" if plan.parallel.device_share else ""
            )
            say(f"{model.name}: {plan.parallel.workers} worker(s) on GPU {groups}{share}")
        for note in plan.notes:
            say(f"{model.name}: {note}")
        yield model, options[model.name], plan, Holding.of(model.name, plan.parallel, hardware.gpus)


def served_beside(options: LmiOptions, hardware: Hardware) -> EnginePlan:
    """Plan a model that this release can run, with what a machine has left.

    Raises:
        ConfigurationError: it cannot be run.
    """
    plan = plan_model(options, os.environ, hardware=hardware)
    refuse_unserved(plan)
    return plan


def held_devices(hardware: Hardware) -> tuple[Holding, ...]:
    """Return what the servers of this user hold of this machine's devices."""
    return Reservations("").held() if hardware.devices else ()


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """Add the options that suppose another machine than this one."""
    group = parser.add_argument_group(
        "machine", "to plan for another machine than this one; no GPU and no weights are needed"
    )
    group.add_argument("--gpus", type=int, metavar="N", help="GPUs of one node; 0 is a CPU")
    group.add_argument("--gpu-memory", metavar="SIZE", help="memory of one GPU, for example 80GiB")
    group.add_argument("--nodes", type=int, metavar="N", help="nodes that may share the model")


def hardware_of(arguments: argparse.Namespace) -> Hardware:
    """Return the machine the arguments suppose, this one where they say nothing.

    Raises:
        ConfigurationError: a number makes no sense.
    """
    hardware = detect_hardware(os.environ)
    for option, value, least in (
        ("--gpus", arguments.gpus, 0),
        ("--nodes", arguments.nodes, 1),
    ):
        if value is not None and not least <= value <= _MOST:
            message = f"{option} {value}; accepted: a whole number, {least} to {_MOST}"
            raise ConfigurationError(message)
    if arguments.gpus is not None:
        names = tuple(str(index) for index in range(arguments.gpus))
        hardware = Hardware(devices=names, host_memory=hardware.host_memory)
    if arguments.gpu_memory is not None:
        hardware = replace(hardware, device_memory=parse_size(arguments.gpu_memory))
    return replace(hardware, nodes=arguments.nodes or 1)


def parse_size(text: str) -> int:
    """Read a size such as 80GiB, in bytes; K, M, G and T are powers of 1024.

    Raises:
        ConfigurationError: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * (1 << _UNITS[match[2].lower()])) if match else 0
    # A number alone would be bytes, and is meant as GiB.
    if size <= 0:
        message = f"--gpu-memory {printable(text)}; accepted: a number and a unit, such as 80GiB"
        raise ConfigurationError(message)
    return size
