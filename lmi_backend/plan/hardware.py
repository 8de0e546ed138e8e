"""What this machine offers: the accelerators and the memory a worker may be given."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lmi_backend.units import MIB

_DEVICE_NODE = re.compile(r"nvidia(\d+)")
_NUMBER = re.compile(r"\d+(\.\d)?")
_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The machine a plan is made for, real or supposed."""

    devices: tuple[str, ...] = ()
    """GPUs of one node, as CUDA_VISIBLE_DEVICES spells them; none is a plan for the CPU."""
    device_memory: int = 0
    """Bytes of the smallest device; 0 if unknown."""
    capability: int = 0
    """Compute capability of the first device, times ten; 0 if unknown."""
    host_memory: int = 0
    """Bytes of host memory that are available; 0 if unknown."""
    nodes: int = 1
    """Machines like this one that may share a model."""

    @property
    def kind(self) -> Literal["gpu", "cpu"]:
        """LMI's word for the devices, as in gpu.minWorkers."""
        return "gpu" if self.devices else "cpu"

    def share(self, parts: int) -> Hardware:
        """Return one of so many equal parts of each node's devices."""
        return replace(self, devices=self.devices[: len(self.devices) // parts])

    def nodes_for(self, size: int) -> int:
        """Return how many nodes a worker of so many devices spans."""
        return -(-size // len(self.devices)) if self.devices else 1


def detect_hardware(environment: Mapping[str, str], *, nodes: Path = Path("/dev")) -> Hardware:
    """Return what this machine has. No driver library is loaded."""
    devices = tuple(visible_devices(environment, nodes=nodes))
    return Hardware(
        devices=devices,
        device_memory=_device_memory() if devices else 0,
        capability=_capability() if devices else 0,
        host_memory=_available_memory(),
    )


def visible_devices(environment: Mapping[str, str], *, nodes: Path = Path("/dev")) -> list[str]:
    """Return the names of the CUDA devices that may be used, as CUDA_VISIBLE_DEVICES spells them.

    CUDA_VISIBLE_DEVICES decides if it is set; else the device nodes of the container.
    """
    mask = environment.get("CUDA_VISIBLE_DEVICES")
    if mask is not None:
        names = [name.strip() for name in mask.split(",")]
        # CUDA ignores what follows the first invalid entry; -1 is the usual way to hide all.
        return names[: names.index("-1")] if "-1" in names else [name for name in names if name]
    found = (_DEVICE_NODE.fullmatch(node.name) for node in nodes.glob("nvidia*"))
    return [str(index) for index in sorted(int(match[1]) for match in found if match)]


def _device_memory() -> int:
    """Return the bytes that CUDA has of the smallest GPU, 0 if the driver's tool does not say.

    The driver keeps some for itself, which older ones do not tell.
    """
    totals = [int(line) for line in _query("memory.total")]
    kept = [int(line) for line in _query("memory.reserved")] or [0] * len(totals)
    return min((whole - part for whole, part in zip(totals, kept, strict=False)), default=0) * MIB


def _capability() -> int:
    """Return the compute capability of the first GPU, times ten; 0 if the tool does not say."""
    return next((int(line.replace(".", "")) for line in _query("compute_cap")), 0)


def _query(field: str) -> list[str]:
    """Return what the driver's tool says of each GPU: numbers, none if it does not say."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = (tool, f"--query-gpu={field}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    said = done.stdout.split()
    return said if all(_NUMBER.fullmatch(line) for line in said) else []


def _available_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return 0
    match = re.search(r"^MemAvailable:\s+(\d+) kB", lines, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
