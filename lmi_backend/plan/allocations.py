"""What other models hold of a machine's devices: each a share of a device's memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmi_backend.plan.engine_plan import Parallel
    from lmi_backend.plan.gpus import Gpu

_ROUNDING: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What one model holds."""

    model: str
    shares: Mapping[str, float]
    """Device, as `identity` names it, to the share of its memory, at most 1."""

    @classmethod
    def of(cls, model: str, parallel: Parallel, gpus: Iterable[Gpu]) -> Allocation:
        """Return what a planned model holds; nothing on a CPU."""
        share, known = parallel.device_share, tuple(gpus)
        devices = {device for group in parallel.device_groups for device in group}
        return cls(
            model=model,
            shares={identity(device, known): share for device in devices} if share else {},
        )


def identity(device: str, gpus: Iterable[Gpu]) -> str:
    """Return what identifies a device under any CUDA_VISIBLE_DEVICES: its UUID.

    Its name, if the UUID is not known.
    """
    return next((gpu.uuid for gpu in gpus if gpu.name == device and gpu.uuid), device)


def busy_devices(
    devices: Collection[str], gpus: Iterable[Gpu], allocations: Iterable[Allocation], share: float
) -> frozenset[str]:
    """Return the devices that have less than a share left by others; none for a share of 0."""
    if not share:
        return frozenset()
    known, held = tuple(gpus), tuple(allocations)
    taken = {
        device: sum(each.shares.get(identity(device, known), 0.0) for each in held)
        for device in devices
    }
    return frozenset(device for device, sum_ in taken.items() if sum_ + share > 1 + _ROUNDING)


def describe(
    devices: Collection[str], gpus: Iterable[Gpu], allocations: Iterable[Allocation], wanted: float
) -> str:
    """Say who holds devices, "a holds 92% of GPU 0 and 1; 92% of a GPU is wanted"."""
    known, texts = tuple(gpus), []
    for each in allocations:
        names = {device: each.shares.get(identity(device, known), 0.0) for device in devices}
        held = sorted(device for device, share in names.items() if share)
        if held:
            most = max(names.values())
            texts.append(f"model {each.model} holds {most:.0%} of GPU {', '.join(held)}")
    return f"{'; '.join(texts)}; {wanted:.0%} of a GPU is wanted here"
