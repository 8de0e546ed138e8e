"""How many workers, and which devices each of them gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lmi_backend.errors import PlanError
from lmi_backend.options.table import lora
from lmi_backend.options.table import server as srv
from lmi_backend.units import MIB

if TYPE_CHECKING:
    from lmi_backend.options import LmiOptions
    from lmi_backend.options.option import Option
    from lmi_backend.plan.engine_plan import Explanation
    from lmi_backend.plan.hardware import Hardware

DeviceGroups = tuple[tuple[str, ...], ...]

_BY_KIND: dict[str, tuple[Option[int], Option[int]]] = {
    "gpu": (srv.GPU_MIN_WORKERS, srv.GPU_MAX_WORKERS),
    "cpu": (srv.CPU_MIN_WORKERS, srv.CPU_MAX_WORKERS),
    "nc": (srv.NC_MIN_WORKERS, srv.NC_MAX_WORKERS),
}


def usable_devices(options: LmiOptions, visible: tuple[str, ...]) -> tuple[str, ...]:
    """Return the visible devices that load_on_devices allows.

    Raises:
        OptionError: it names one that is not visible, or one twice.
    """
    text = options[srv.LOAD_ON_DEVICES]
    if text == "*":
        return visible
    if text == "-1":
        return ()
    names = [item.strip().removeprefix("gpu") for item in text.split(";")]
    known = set(map(str, range(len(visible))))
    indices = [int(name) for name in names if name in known]
    if len(set(indices)) < len(names):
        problem = f"names a device twice or one that is not visible; visible: {len(visible)}"
        raise options.error(srv.LOAD_ON_DEVICES, problem)
    return tuple(visible[index] for index in indices)


def cut_devices(
    options: LmiOptions, hardware: Hardware, size: int, why: Explanation
) -> DeviceGroups:
    """Return the devices of each worker, `size` of them, as CUDA_VISIBLE_DEVICES spells them.

    Raises:
        OptionError: the bounds of the number of workers cannot be kept.
    """
    least, most = _bound(options, hardware.kind, 0), _bound(options, hardware.kind, 1)
    if 0 < options[most] < options[least]:
        raise options.error(least, f"is more than {most.name}, {options[most]}")
    devices = hardware.devices
    if not devices:
        # LMI starts one for every OMP_NUM_THREADS cores; an engine uses all cores by itself.
        return ((),) * (options[least] or 1)
    if size > len(devices):
        nodes = hardware.nodes_for(size)
        why.reasons.append(f"1 worker of {size} devices over {nodes} nodes")
        return (devices[: -(-size // nodes)],)
    copies = min(len(devices) // size, options[most] or len(devices))
    if options[lora.ENABLE_LORA] and copies > 1 and not options.is_set(least):
        copies = 1
        why.reasons.append("1 worker: LMI serves LoRA adapters from one worker")
    if options[least] > copies:
        problem = f"workers of {size} devices do not fit on {len(devices)} devices"
        raise options.error(least, problem)
    idle = len(devices) - copies * size
    if idle:
        why.notes.append(f"{idle} of {len(devices)} devices are left unused")
    why.reasons.append(f"{copies} worker(s) of {size} device(s): {len(devices)} usable")
    return tuple(devices[i * size : (i + 1) * size] for i in range(copies))


def check_memory(options: LmiOptions, hardware: Hardware) -> None:
    """Check LMI's own bounds of memory.

    Raises:
        PlanError: less is available than required_memory_mb and reserved_memory_mb together.
    """
    for what, required, reserved, available in (
        ("host memory", srv.REQUIRED_MEMORY, srv.RESERVED_MEMORY, hardware.host_memory),
        ("a GPU's", srv.GPU_REQUIRED_MEMORY, srv.GPU_RESERVED_MEMORY, hardware.device_memory),
    ):
        needed = options[required] + options[reserved]
        if options[required] and available and needed * MIB > available:
            raise PlanError(
                f"{what} {available // MIB} MiB are less than {required.name}, "
                f"{options[required]}, and {reserved.name}, {options[reserved]}, together"
            )


def _bound(options: LmiOptions, kind: str, side: Literal[0, 1]) -> Option[int]:
    """Return the option that bounds workers on this kind of device: its own, else the general."""
    device = options.choice.spec.implementation.device
    own = _BY_KIND[kind if device == "gpu" else device][side]
    general = (srv.MIN_WORKERS, srv.MAX_WORKERS)[side]
    return own if options.is_set(own) else general
