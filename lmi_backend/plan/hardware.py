"""What this machine offers: the accelerators and the memory a worker may be given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lmi_backend.plan.allocations import Allocation
from lmi_backend.plan.gpus import PARTITION, Gpu, find_gpus
from lmi_backend.plan.host_memory import host_memory

_DEVICE_NODE = re.compile(r"nvidia(\d+)")
MASK = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The machine a plan is made for, real or supposed."""

    devices: tuple[str, ...] = ()
    """GPUs of one node, as CUDA_VISIBLE_DEVICES spells them; none is a plan for the CPU."""
    device_memory: int = 0
    """Bytes of the smallest device; 0 if unknown."""
    capability: int = 0
    """Compute capability of the first device, times ten; 0 if unknown."""
    is_instinct: bool = False
    """Whether the devices are AMD's."""
    host_memory: int = 0
    """Bytes of host memory that are available; 0 if unknown."""
    nodes: int = 1
    """Machines like this one that may share a model."""
    gpus: tuple[Gpu, ...] = ()
    """What is known of each device; none on a supposed machine."""
    mask_problem: str = ""
    """What is wrong with CUDA_VISIBLE_DEVICES; empty if nothing."""
    allocations: tuple[Allocation, ...] = ()
    """What other models hold of the devices."""
    busy: frozenset[str] = frozenset()
    """Devices that have too little left for the planned model."""
    sharers: int = 1
    """Models that share what is left evenly, the planned one among them."""
    is_shared: bool = False
    """Whether other models are planned for the same machine."""

    @property
    def kind(self) -> Literal["gpu", "cpu"]:
        """LMI's name for the devices, as in gpu.minWorkers."""
        return "gpu" if self.devices else "cpu"

    @property
    def interconnect(self) -> str:
        """By what several devices reach each other: NVLink or PCIe; empty if unknown."""
        links = [gpu.links for gpu in self.gpus]
        if len(links) < 2 or min(links) < 0:
            return ""
        return "NVLink" if min(links) else "PCIe"

    def share(self, parts: int) -> Hardware:
        """Return one of so many equal parts of each node's devices."""
        return replace(self, devices=self.devices[: len(self.devices) // parts])

    def nodes_for(self, size: int) -> int:
        """Return how many nodes a worker of so many devices spans."""
        return -(-size // len(self.devices)) if self.devices else 1


def detect_hardware(environment: Mapping[str, str], *, nodes: Path = Path("/dev")) -> Hardware:
    """Return what this machine has. No driver library is loaded into this process."""
    mask = environment.get(MASK)
    gpus = find_gpus() if mask != "" else []
    visible = visible_gpus(mask, gpus, nodes=nodes)
    memory = host_memory()
    return Hardware(
        devices=tuple(gpu.name for gpu in visible),
        device_memory=min(
            (memory.total if gpu.is_unified else gpu.memory for gpu in visible), default=0
        ),
        capability=visible[0].capability if visible else 0,
        host_memory=memory.available,
        gpus=tuple(visible),
        mask_problem=_mask_problem(mask, gpus, len(visible)),
    )


def visible_gpus(mask: str | None, gpus: Sequence[Gpu], *, nodes: Path = Path("/dev")) -> list[Gpu]:
    """Return the GPUs that CUDA sees: those that CUDA_VISIBLE_DEVICES names, where it is set.

    As in CUDA, entries after the first unknown one are ignored. If the driver reports no GPUs the
    mask is believed; without a mask the device nodes are counted.
    """
    if mask is None:
        return list(gpus) or _counted(nodes)
    found: list[Gpu] = []
    for name in _entries(mask):
        gpu = _named(name, gpus) if gpus else Gpu(name=name)
        if gpu is None:
            break
        found.append(gpu)
    return found


def _entries(mask: str) -> list[str]:
    """Return the entries of a mask up to one that is empty or -1, the usual way to hide all."""
    names = [name.strip() for name in mask.split(",")]
    return names[: next((at for at, name in enumerate(names) if name in ("-1", "")), len(names))]


def _named(name: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU of an entry: an index, or the beginning of the UUID of just one."""
    if name.startswith(f"{PARTITION}GPU-"):
        # Of old drivers: the GPU's UUID and two numbers, which nobody tells.
        return Gpu(name=name, uuid=name)
    matching = [
        gpu
        for index, gpu in enumerate(gpus)
        if (str(index) == name if name.isdecimal() else gpu.uuid.startswith(name))
    ]
    return replace(matching[0], name=name) if len(matching) == 1 else None


def _mask_problem(mask: str | None, gpus: Sequence[Gpu], count: int) -> str:
    names = _entries(mask or "")
    if not gpus or count == len(names) or mask is None:
        return ""
    return (
        f"{MASK}={mask}: {names[count]} is none of the {len(gpus)} GPUs that CUDA has, and what "
        f"follows it is ignored; accepted: 0 to {len(gpus) - 1}, or the beginning of a UUID"
    )


def _counted(nodes: Path) -> list[Gpu]:
    """Return as many GPUs as there are device nodes; their numbers are not CUDA's.

    A container may have CUDA and not the driver's tool.
    """
    found = [node for node in nodes.glob("nvidia*") if _DEVICE_NODE.fullmatch(node.name)]
    return [Gpu(name=str(index)) for index in range(len(found))]
