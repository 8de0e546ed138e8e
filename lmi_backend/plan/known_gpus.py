"""GPUs that a plan can be made for by name: their memory as vLLM sees it, and their kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import printable
from lmi_backend.units import GIB, MIB


@dataclass(frozen=True)
class KnownGpu:
    """One kind of GPU."""

    gib: float
    """Memory that CUDA or ROCm has of it, by a log; of some AMD's by their maker."""
    capability: int = 0
    """Compute capability, times ten; 0 of an AMD."""

    @property
    def memory(self) -> int:
        """The same in bytes."""
        return int(self.gib * GIB)

    @property
    def is_instinct(self) -> bool:
        return not self.capability


KNOWN_GPUS: Final = {
    "V100-16GB": KnownGpu(15.77, 70),
    "V100-32GB": KnownGpu(31.74, 70),
    "T4": KnownGpu(14.56, 75),
    "A100-40GB": KnownGpu(39.49, 80),
    "A100-80GB": KnownGpu(79.25, 80),
    "A10G": KnownGpu(22.06, 86),
    "A40": KnownGpu(44.39, 86),
    "RTX-A6000": KnownGpu(47.4, 86),
    "RTX-3090": KnownGpu(23.56, 86),
    "RTX-4090": KnownGpu(23.52, 89),
    "L4": KnownGpu(22.04, 89),
    "L40S": KnownGpu(44.39, 89),
    "H100": KnownGpu(79.19, 90),
    "H100-NVL": KnownGpu(93.1, 90),
    "GH200": KnownGpu(94.5, 90),
    "H200": KnownGpu(139.81, 90),
    "B200": KnownGpu(178.35, 100),
    "GB200": KnownGpu(184.31, 100),
    "B300": KnownGpu(268.0, 103),
    "RTX-5090": KnownGpu(31.36, 120),
    "RTX-PRO-4500": KnownGpu(31.38, 120),
    "RTX-PRO-6000": KnownGpu(94.97, 120),
    "GB10": KnownGpu(119.63, 121),
    "MI250": KnownGpu(63.9),
    "MI300X": KnownGpu(191.69),
    "MI325X": KnownGpu(255.6),
    "MI355X": KnownGpu(287.5),
}
"""By their names, without their makers'."""
_NEAR: Final = 15 * MIB
"""Between what two logs of one kind of GPU say."""
_MAKERS: Final = re.compile(r"^(nvidia|amd|tesla|instinct|geforce|[ _-])+", re.IGNORECASE)


def known_gpu(name: str) -> KnownGpu:
    """Return the GPU of a name: "H100", "NVIDIA L40S", "rtx 4090".

    Raises:
        ConfigurationError: none is known by it.
    """
    wanted = _plain(_MAKERS.sub("", name))
    for each, found in KNOWN_GPUS.items():
        if _plain(each) == wanted:
            return found
    accepted = ", ".join(KNOWN_GPUS)
    raise ConfigurationError(f"--gpu {printable(name)}; accepted: {accepted}")


def gpu_of_memory(memory: int) -> KnownGpu | None:
    """Return the GPU that has just so many bytes; None where no log's figure is so near."""
    near = (each for each in KNOWN_GPUS.values() if abs(each.memory - memory) < _NEAR)
    return next(near, None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
