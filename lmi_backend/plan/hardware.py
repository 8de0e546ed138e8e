"""What this machine offers: accelerators, memory, and what other models hold of them.

GPUs are counted as CUDA counts them. Device nodes do not tell: a container with GPUs 4 and 5 of its
node has /dev/nvidia4 and /dev/nvidia5. Linux on Windows has no such nodes at all. CUDA counts from
0 in both.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import GIB, MIB, printable

if TYPE_CHECKING:
    from lmi_backend.plan.engine_plan import Parallel


class GpuKind(NamedTuple):
    gib: float
    """Memory that CUDA has of it, by a log."""
    capability: int
    """Compute capability, times ten."""

    @property
    def memory(self) -> int:
        return int(self.gib * GIB)


GPU_KINDS: Final = {
    "V100-16GB": GpuKind(15.77, 70),
    "V100-32GB": GpuKind(31.74, 70),
    "T4": GpuKind(14.56, 75),
    "A100-40GB": GpuKind(39.49, 80),
    "A100-80GB": GpuKind(79.25, 80),
    "A10G": GpuKind(22.06, 86),
    "A40": GpuKind(44.39, 86),
    "RTX-A6000": GpuKind(47.4, 86),
    "RTX-3090": GpuKind(23.56, 86),
    "RTX-4090": GpuKind(23.52, 89),
    "L4": GpuKind(22.04, 89),
    "L40S": GpuKind(44.39, 89),
    "H100": GpuKind(79.19, 90),
    "H100-NVL": GpuKind(93.1, 90),
    "GH200": GpuKind(94.5, 90),
    "H200": GpuKind(139.81, 90),
    "B200": GpuKind(178.35, 100),
    "GB200": GpuKind(184.31, 100),
    "B300": GpuKind(268.0, 103),
    "RTX-5090": GpuKind(31.36, 120),
    "RTX-PRO-4500": GpuKind(31.38, 120),
    "RTX-PRO-6000": GpuKind(94.97, 120),
    "GB10": GpuKind(119.63, 121),
}
"""By their names, without their maker's."""
_NEAR: Final = 15 * MIB
"""Between what two logs of one kind of GPU say."""
_MAKERS: Final = re.compile(r"^(nvidia|tesla|geforce|[ _-])+", re.IGNORECASE)


def gpu_kind(name: str) -> GpuKind:
    """Return the GPU of a name: "H100", "NVIDIA L40S", "rtx 4090".

    Raises:
        ConfigurationError: none is known by it.
    """
    wanted = _plain(_MAKERS.sub("", name))
    for each, gpu in GPU_KINDS.items():
        if _plain(each) == wanted:
            return gpu
    accepted = ", ".join(GPU_KINDS)
    raise ConfigurationError(f"--gpu {printable(name)}; accepted: {accepted}")


def gpu_of_memory(memory: int) -> GpuKind | None:
    """Return the GPU that has just so many bytes; None where no log's figure is so near."""
    near = (each for each in GPU_KINDS.values() if abs(each.memory - memory) < _NEAR)
    return next(near, None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


PARTITION: Final = "MIG-"
"""How the UUID of a part of a divided GPU begins."""
_TOOL: Final = "nvidia-smi"
# Windows' Linux has it, outside of PATH.
_FOLDERS: Final = ("/usr/lib/wsl/lib", "/usr/bin")
_FIELDS: Final = (
    "uuid", "name", "memory.total", "memory.reserved", "compute_cap", "driver_version",
    "mig.mode.current",
)  # fmt: skip
"""All drivers that engines of today run on know them."""
_PARTITION: Final = re.compile(r"^[ \t]+MIG .*\(UUID: (MIG-[^)\s]+)\)", re.MULTILINE)
_GPU: Final = re.compile(r"^GPU \d+:.*\(UUID: (GPU-[^)\s]+)\)", re.MULTILINE)
_SIZES: Final = re.compile(
    r"<fb_memory_usage>\s*<total>(\d+) MiB</total>(?:\s*<reserved>(\d+) MiB)?"
)
"""MiB of a partition, in all and kept by the driver, in the tool's XML."""
_NUMBER: Final = re.compile(r"\d{1,9}")
_CAPABILITY: Final = re.compile(r"(\d{1,2})\.(\d)")
_NONE: Final = ("[N/A]", "N/A", "[Not Supported]")
_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One device of CUDA's: a GPU, or a partition of one."""

    name: str
    """As CUDA_VISIBLE_DEVICES spells it."""
    uuid: str = ""
    product: str = ""
    memory: int = 0
    """Bytes that CUDA has of it; 0 if unknown."""
    capability: int = 0
    """Compute capability, times ten; 0 if unknown."""
    driver: str = ""
    is_unified: bool = False
    """Whether it has no memory but the host's."""


def find_gpus() -> list[Gpu]:
    """Return all GPUs that the driver reports, also those that CUDA_VISIBLE_DEVICES hides.

    Indices are in the order of the bus (CUDA_DEVICE_ORDER=PCI_BUS_ID).
    """
    tool = shutil.which(_TOOL) or shutil.which(_TOOL, path=":".join(_FOLDERS))
    rows = _rows(tool) if tool else []
    # CUDA counts no partitions by itself, and only one is seen by index.
    by_uuid = any(row[0].startswith(PARTITION) for row in rows)
    return [_gpu(row[0] if by_uuid else str(index), row) for index, row in enumerate(rows)]


def _gpu(name: str, row: list[str]) -> Gpu:
    uuid, product, total, reserved, capability, driver, _ = row
    version = _CAPABILITY.fullmatch(capability)
    reserved_mib = int(reserved) if _NUMBER.fullmatch(reserved) else 0
    return Gpu(
        name=name,
        uuid=uuid,
        product=product,
        # The driver keeps some for itself.
        memory=(int(total) - reserved_mib) * MIB if _NUMBER.fullmatch(total) else 0,
        capability=int(version[1] + version[2]) if version else 0,
        driver=driver if driver not in _NONE else "",
        is_unified=total in _NONE and not uuid.startswith(PARTITION),
    )


def _rows(tool: str) -> list[list[str]]:
    """Return a row for each GPU, and for each partition in the place of its GPU."""
    output = _output((tool, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"))
    rows = [[text.strip() for text in line.split(",")] for line in output.splitlines()]
    if any(len(row) != len(_FIELDS) for row in rows):
        return []
    listed: dict[str, list[str]] = {}
    if any(row[-1] == "Enabled" for row in rows):
        _, *parts = _GPU.split(_output((tool, "-L")))
        listed = dict(zip(parts[::2], map(_PARTITION.findall, parts[1::2]), strict=True))
    return [each for row in rows for each in _partitions(tool, row, listed.get(row[0])) or [row]]


def _partitions(tool: str, row: list[str], uuids: list[str] | None) -> list[list[str]]:
    """Return the partitions of a GPU; their memory is empty where the tool's XML has none."""
    if not uuids:
        return []
    *parts, _ = _output((tool, "-q", "-x", "-i", row[0])).split("</mig_device>")
    matches = [_SIZES.search(part.rpartition("<mig_device>")[2]) for part in parts]
    sizes = [each.groups("") for each in matches if each]
    if len(sizes) != len(uuids):
        sizes = [("", "")] * len(uuids)
    return [[uuid, row[1], *size, *row[4:]] for uuid, size in zip(uuids, sizes, strict=True)]


def _output(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip("\n")


_ROOT: Final = Path("/")


_MOUNT: Final = "sys/fs/cgroup"
"""Of control groups of the second version; the first gives no limit here."""
_MACHINE: Final = "proc/vmstat"
"""Counts for the whole machine the processes that the kernel has killed for want of memory."""


class HostMemory(NamedTuple):
    """Bytes of memory, each 0 if unknown."""

    total: int
    """Of the machine, even where a container has a limit."""
    available: int
    """What this process may still take. What the kernel keeps of files counts as available."""


def host_memory(root: Path = _ROOT) -> HostMemory:
    """Return the machine's memory, and what is left of it, or of a container's limit."""
    try:
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        total, available = (
            int(sizes[name].removesuffix(" kB")) << 10 for name in ("MemTotal", "MemAvailable")
        )
    except (OSError, ValueError, KeyError):
        return HostMemory(0, 0)
    return HostMemory(total, max(0, min([available, *_left(root)])))


def memory_kills(root: Path = _ROOT) -> int:
    """Return how many processes of this container the kernel has killed for want of memory.

    Where no group counts them, the machine does; 0 if that is not known either.
    """
    files = [folder / "memory.events" for folder in _groups(root)]
    for file in (*files, root / _MACHINE):
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(
                dict(line.split() for line in file.read_text("ascii").splitlines())["oom_kill"]
            )
    return 0


def _left(root: Path) -> Iterator[int]:
    """Yield what is left of the limit of each group that holds this process."""
    for folder in _groups(root):
        with contextlib.suppress(OSError, ValueError, KeyError):
            limit = int((folder / "memory.max").read_text("ascii"))  # "max" is no number
            used = int((folder / "memory.current").read_text("ascii"))
            lines = (folder / "memory.stat").read_text("ascii").splitlines()
            # Of what files have in memory, that which nobody has used lately is free, too.
            yield limit - used + int(dict(line.split() for line in lines)["inactive_file"])


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folder of this process's group and of each group above it.

    A container without a namespace for groups has the machine's path of its group, and that
    group's files at the top: a folder that is not there is passed over.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                own = PurePosixPath(path.lstrip("/"))
                yield from (root / _MOUNT / group for group in (own, *own.parents))


_ROUNDING: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What one model holds."""

    model: str
    shares: Mapping[str, float]
    """Device, as `identity` names it, to the share of its memory, at most 1."""

    @classmethod
    def of(cls, model: str, parallel: Parallel, gpus: Sequence[Gpu]) -> Allocation:
        """Return what a planned model holds; nothing on a CPU."""
        share = parallel.device_share
        devices = {device for group in parallel.device_groups for device in group}
        shares = {identity(device, gpus): share for device in devices} if share else {}
        return cls(model=model, shares=shares)


def identity(device: str, gpus: Iterable[Gpu]) -> str:
    """Return what identifies a device under any CUDA_VISIBLE_DEVICES: its UUID.

    Its name, if the UUID is not known.
    """
    return next((gpu.uuid for gpu in gpus if gpu.name == device and gpu.uuid), device)


def busy_devices(
    devices: Collection[str], gpus: Sequence[Gpu], allocations: Sequence[Allocation], share: float
) -> frozenset[str]:
    """Return the devices that have less than a share left by others; none for a share of 0."""
    if not share:
        return frozenset()
    held = {
        device: sum(each.shares.get(identity(device, gpus), 0.0) for each in allocations)
        for device in devices
    }
    return frozenset(device for device, sum_ in held.items() if sum_ + share > 1 + _ROUNDING)


def describe(
    devices: Collection[str], gpus: Sequence[Gpu], allocations: Sequence[Allocation], wanted: float
) -> str:
    """Say who holds devices, "a holds 92% of GPU 0 and 1; 92% of a GPU is wanted"."""
    texts = []
    for each in allocations:
        names = {device: each.shares.get(identity(device, gpus), 0.0) for device in devices}
        held = sorted(device for device, share in names.items() if share)
        if held:
            most = max(names.values())
            texts.append(f"model {each.model} holds {most:.0%} of GPU {', '.join(held)}")
    return f"{'; '.join(texts)}; {wanted:.0%} of a GPU is wanted here"


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
    def title(self) -> str:
        if not self.devices:
            return "a machine without GPUs"
        memory = f" of {self.device_memory / GIB:.4g} GiB" if self.device_memory else ""
        return f"{len(self.devices)} GPU(s){memory}"

    def share(self, parts: int) -> Hardware:
        """Return one of so many equal parts of each node's devices."""
        return replace(self, devices=self.devices[: len(self.devices) // parts])

    def nodes_for(self, size: int) -> int:
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
    visible: list[Gpu] = []
    for name in _entries(mask):
        gpu = _named(name, gpus) if gpus else Gpu(name=name)
        if gpu is None:
            break
        visible.append(gpu)
    return visible


def _entries(mask: str) -> list[str]:
    """Return the entries of a mask up to one that is empty or -1, the usual way to hide all."""
    names = [name.strip() for name in mask.split(",")]
    return names[: next((at for at, name in enumerate(names) if name in ("-1", "")), len(names))]


def _named(name: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU of an entry: an index, or the beginning of the UUID of just one."""
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
    devices = [node for node in nodes.glob("nvidia*") if _DEVICE_NODE.fullmatch(node.name)]
    return [Gpu(name=str(index)) for index in range(len(devices))]
