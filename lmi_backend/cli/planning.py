"""What the commands share: from a path to options and plan."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from lmi_backend.cli.folders import LmiFolder
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import LmiOptions, load_options
from lmi_backend.options.releases import names_release, numbers
from lmi_backend.plan import EnginePlan, plan_model
from lmi_backend.plan.hardware import (
    MASK,
    Allocation,
    Hardware,
    detect_hardware,
    gpu_kind,
)
from lmi_backend.plan.multi_model import Reservations, plan_together
from lmi_backend.printable import printable, say

_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}
_MOST = 4096
_LEAST_PARTS = 2
"""Numbers of a release: 0.26 is one, and 26 may be a slip."""
UNREAD = 3
"""Exit status: a plan was made without the size of a model."""
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kmgt])(?:i?b)?", re.IGNORECASE | re.ASCII)


def options_of(
    model: LmiFolder, machine: Machine, *, for_another_machine: bool = False
) -> LmiOptions:
    """Return the options of a model; another machine may have folders that are not here."""
    options = load_options(model.folder, os.environ, given=model.given)
    return machine.supposed(options, for_another_machine=for_another_machine)


def all_planned(
    options: Mapping[str, LmiOptions],
    hardware: Hardware,
    plan: Callable[[LmiOptions, Hardware], EnginePlan],
) -> dict[str, EnginePlan]:
    made = plan_together(options, hardware, plan)
    problems = {name: each for name, each in made.items() if isinstance(each, ConfigurationError)}
    if problems and len(options) == 1:
        raise next(iter(problems.values()))
    if problems:
        raise ConfigurationError(*(f"{name}: {problem}" for name, problem in problems.items()))
    return {name: each for name, each in made.items() if isinstance(each, EnginePlan)}


def served_plans(
    models: Sequence[LmiFolder],
) -> Iterator[tuple[LmiFolder, LmiOptions, EnginePlan, Allocation]]:
    options = {model.name: options_of(model, Machine()) for model in models}
    hardware = detect_hardware(os.environ)
    hardware = replace(hardware, allocations=held_devices(hardware))
    plans = all_planned(
        options, hardware, lambda each, left: plan_model(each, os.environ, hardware=left)
    )
    for model in models:
        plan = plans[model.name]
        if len(models) > 1 and any(plan.parallel.device_groups):
            share = plan.parallel.device_share
            of_each = f", {share:.0%} of each" if share else ""
            say(f"{model.name}: {plan.parallel.workers} worker(s) on {devices_of(plan)}{of_each}")
        say_notes(model.name, plan)
        allocation = Allocation.of(model.name, plan.parallel, hardware.gpus)
        yield model, options[model.name], plan, allocation


def say_notes(name: str, plan: EnginePlan) -> None:
    for note in plan.notes:
        say(f"{name}: {note}")


def devices_of(plan: EnginePlan) -> str:
    groups = "; ".join(",".join(group) for group in plan.parallel.device_groups if group)
    return f"GPU {groups}" if groups else "the CPU"


def held_devices(hardware: Hardware) -> tuple[Allocation, ...]:
    return Reservations("").held() if hardware.devices else ()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine to plan for; what is left out is that of this one."""

    gpus: int | None = None
    """Of one node; 0 is a CPU."""
    gpu: str | None = None
    """Its kind, such as "L40S"; one of them unless `gpus` says more."""
    gpu_memory: str | None = None
    """Of one GPU, such as "80GiB"."""
    nodes: int | None = None
    engine_version: str = ""

    @property
    def for_another_machine(self) -> bool:
        return self.gpus is not None or self.gpu is not None

    @property
    def release(self) -> str:
        given = self.engine_version.strip().removeprefix("v")
        if given and (len(numbers(given)) < _LEAST_PARTS or not names_release(given)):
            message = f"--engine-version {printable(given)}; accepted: a release, such as 0.26.0"
            raise ConfigurationError(message)
        return given

    def supposed(self, options: LmiOptions, *, for_another_machine: bool = False) -> LmiOptions:
        for_another_machine |= self.for_another_machine
        return replace(
            options, supposed_release=self.release, for_another_machine=for_another_machine
        )

    def hardware(self) -> Hardware:
        for option, value, least in (("--gpus", self.gpus, 0), ("--nodes", self.nodes, 1)):
            if value is not None and not least <= value <= _MOST:
                message = f"{option} {value}; accepted: a whole number, {least} to {_MOST}"
                raise ConfigurationError(message)
        # To ask for the devices of this machine takes a process, which nothing needs then.
        hardware = detect_hardware(os.environ | ({MASK: ""} if self.for_another_machine else {}))
        if self.for_another_machine:
            names = tuple(map(str, range(1 if self.gpus is None else self.gpus)))
            hardware = Hardware(devices=names, host_memory=hardware.host_memory)
        if self.gpu is not None:
            gpu, devices = gpu_kind(self.gpu), hardware.devices or ("0",)
            hardware = replace(
                hardware,
                devices=devices,
                device_memory=gpu.memory,
                capability=gpu.capability,
                gpus=(),
            )
        if self.gpu_memory is not None:
            memory = parse_size(self.gpu_memory)
            if not hardware.devices:
                message = f"--gpu-memory {printable(self.gpu_memory)}: there is no GPU; accepted: "
                raise ConfigurationError(f"{message}next to --gpus N, 1 or more, or --gpu NAME")
            hardware = replace(hardware, device_memory=memory)
        return replace(hardware, nodes=self.nodes or 1)


def add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "machine", "to plan for another machine than this one; no GPU and no weights are needed"
    )
    group.add_argument("--gpus", type=int, metavar="N", help="GPUs of one node; 0 is a CPU")
    group.add_argument(
        "--gpu",
        metavar="NAME",
        help="kind of GPU, such as H100, L4 or L40S; one of them unless --gpus says more",
    )
    group.add_argument("--gpu-memory", metavar="SIZE", help="memory of one GPU, for example 80GiB")
    group.add_argument("--nodes", type=int, metavar="N", help="nodes that may share the model")
    add_release(group)


def add_release(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--engine-version",
        default="",
        metavar="VERSION",
        help="release of the engine to suppose, such as 0.26.0 of vLLM; default: the one that the "
        "workers' interpreter has, else the one of our record",
    )


def machine_of(arguments: argparse.Namespace) -> Machine:
    given = vars(arguments)
    return Machine(
        **{each.name: given[each.name] for each in fields(Machine) if each.name in given}
    )


def parse_size(text: str) -> int:
    """Read a size such as 80GiB, in bytes; K, M, G and T are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * (1 << _UNITS[match[2].lower()])) if match else 0
    # A number alone would be bytes, and is meant as GiB.
    if size <= 0:
        message = f"--gpu-memory {printable(text)}; accepted: a number and a unit, such as 80GiB"
        raise ConfigurationError(message)
    return size
