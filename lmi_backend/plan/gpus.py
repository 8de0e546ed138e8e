"""The GPUs of this machine, counted as CUDA counts them, with what the driver says of each.

Device nodes do not tell: a container with GPUs 4 and 5 of its node has /dev/nvidia4 and
/dev/nvidia5. Linux on Windows has no such nodes at all. CUDA counts from 0 in both.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Final

from lmi_backend.units import MIB

PARTITION: Final = "MIG-"
"""How the UUID of a part of a divided GPU begins."""
_TOOL: Final = "nvidia-smi"
# Windows' Linux has it, outside of PATH.
_FOLDERS: Final = ("/usr/lib/wsl/lib", "/usr/bin")
_BASIC: Final = ("index", "uuid", "name", "memory.total")
_LATER: Final = ("memory.reserved", "compute_cap", "driver_version", "mig.mode.current")
"""What older drivers refuse to tell, and then the rest with it."""
_PARTITION: Final = re.compile(r"^[ \t]+MIG .*\(UUID: (MIG-[^)\s]+)\)", re.MULTILINE)
_GPU: Final = re.compile(r"^GPU \d+:.*\(UUID: (GPU-[^)\s]+)\)", re.MULTILINE)
_UP: Final = re.compile(r"^[ \t]+Link \d+: [\d.]+ GB/s", re.MULTILINE)
_SIZES: Final = re.compile(
    r"<fb_memory_usage>\s*<total>(\d+) MiB</total>(?:\s*<reserved>(\d+) MiB)?"
)
"""MiB of a partition, in all and kept by the driver, in the tool's XML."""
_NUMBER: Final = re.compile(r"\d{1,9}")
_CAPABILITY: Final = re.compile(r"(\d{1,2})\.(\d)")
_UNKNOWN: Final = "[N/A]"
_NONE: Final = (_UNKNOWN, "N/A", "[Not Supported]")
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
    links: int = -1
    """NVLinks that are up; less than 0 if unknown."""
    is_unified: bool = False
    """Whether it has no memory but the host's."""


def find_gpus() -> list[Gpu]:
    """Return all GPUs that the driver reports, also those that CUDA_VISIBLE_DEVICES hides.

    Indices are in the order of the bus (CUDA_DEVICE_ORDER=PCI_BUS_ID).
    """
    tool = shutil.which(_TOOL) or shutil.which(_TOOL, path=":".join(_FOLDERS))
    rows = _rows(tool) if tool else []
    # CUDA counts no partitions by itself, and only one is seen by index.
    by_uuid = any(row[1].startswith(PARTITION) for row in rows)
    return [_gpu(row[1] if by_uuid else str(index), row) for index, row in enumerate(rows)]


def _gpu(name: str, row: list[str]) -> Gpu:
    _, uuid, product, total, kept, capability, driver, links = row
    version = _CAPABILITY.fullmatch(capability)
    kept_mib = int(kept) if _NUMBER.fullmatch(kept) else 0
    return Gpu(
        name=name,
        uuid=uuid,
        product=product,
        # The driver keeps some for itself, which older ones do not tell.
        memory=(int(total) - kept_mib) * MIB if _NUMBER.fullmatch(total) else 0,
        capability=int(version[1] + version[2]) if version else 0,
        driver=driver if driver not in _NONE else "",
        links=int(links) if _NUMBER.fullmatch(links) else -1,
        is_unified=total in _NONE and not uuid.startswith(PARTITION),
    )


def _rows(tool: str) -> list[list[str]]:
    """Return a row for each GPU, and for each partition in the place of its GPU."""
    rows = _ask(tool, (*_BASIC, *_LATER))
    if not rows:
        rows = _ask(tool, _BASIC)
        for field in _LATER if rows else ():
            values = _ask(tool, (field,))
            texts = [each for (each,) in values] or [_UNKNOWN] * len(rows)
            rows = [[*row, text] for row, text in zip(rows, texts, strict=True)]
    links = _by_gpu((tool, "nvlink", "--status")) if len(rows) > 1 else {}
    divided = any(row[-1] == "Enabled" for row in rows)
    listed = _by_gpu((tool, "-L")) if divided else {}
    found = []
    for *row, mode in rows:
        up = str(len(_UP.findall(links[row[1]]))) if row[1] in links else _UNKNOWN
        parts = _partitions(tool, row, listed.get(row[1], "")) if mode == "Enabled" else []
        found += [[*each, up] for each in parts or [row]]
    return found


def _by_gpu(command: tuple[str, ...]) -> dict[str, str]:
    """Return what follows the line of each GPU, by the UUID of the GPU."""
    parts = _GPU.split(_output(command))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _partitions(tool: str, row: list[str], listed: str) -> list[list[str]]:
    """Return the partitions of a GPU; their memory is empty where the tool's XML has none."""
    uuids = _PARTITION.findall(listed)
    *parts, _ = _output((tool, "-q", "-x", "-i", row[1])).split("</mig_device>")
    found = [_SIZES.search(part.rpartition("<mig_device>")[2]) for part in parts]
    sizes = [each.groups("") for each in found if each]
    if len(sizes) != len(uuids):
        sizes = [("", "")] * len(uuids)
    return [
        [row[0], uuid, row[2], *size, *row[5:]] for uuid, size in zip(uuids, sizes, strict=True)
    ]


def _ask(tool: str, names: tuple[str, ...]) -> list[list[str]]:
    """Return what the tool says of each GPU; nothing if it knows one of the fields not."""
    output = _output((tool, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"))
    rows = [[text.strip() for text in line.split(",")] for line in output.splitlines()]
    return rows if all(len(row) == len(names) for row in rows) else []


def _output(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip("\n")
