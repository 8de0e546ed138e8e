"""How many workers, which devices each of them gets, and which of them have a spare."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import PlanError
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import server as srv
from lmi_backend.options.table import vllm
from lmi_backend.plan.arguments import EVENTS, TRANSFERS
from lmi_backend.plan.engine_plan import Scaling
from lmi_backend.plan.hardware import PARTITION
from lmi_backend.printable import MIB, human_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.spec import Option
    from lmi_backend.plan.engine_plan import Explanation, Launch, Parallel
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.memory import MemoryEstimate


DeviceGroups = tuple[tuple[str, ...], ...]

_NONE = "none; plan, check, convert and render suppose some with --gpus and --gpu-memory"
_BY_KIND: dict[str, tuple[Option[int], Option[int]]] = {
    "gpu": (srv.GPU_MIN_WORKERS, srv.GPU_MAX_WORKERS),
    "cpu": (srv.CPU_MIN_WORKERS, srv.CPU_MAX_WORKERS),
    "nc": (srv.NC_MIN_WORKERS, srv.NC_MAX_WORKERS),
}


def usable_devices(options: LmiOptions, hardware: Hardware) -> tuple[str, ...]:
    """Return the devices that load_on_devices allows a worker, its own first one's if many.

    Raises:
        OptionError: it names one that is not visible, or one twice, or leaves a worker too few.
        PlanError: other models hold all devices.
    """
    text, visible = options[srv.LOAD_ON_DEVICES], hardware.devices
    if text == "*":
        free = tuple(device for device in visible if device not in hardware.busy)
        if visible and not free:
            raise PlanError(f"no device of {len(visible)} has enough memory left")
        return free
    if text == "-1":
        return ()
    firsts = _first_devices(options, visible)
    ends = [*sorted(firsts)[1:], len(visible)]
    per_worker = min(end - first for first, end in zip(sorted(firsts), ends, strict=True))
    degree = options[opt.TENSOR_PARALLEL_DEGREE]
    tensor = degree if options.is_set(opt.TENSOR_PARALLEL_DEGREE) and degree != "max" else 1
    size = tensor * options[opt.PIPELINE_PARALLEL_DEGREE] * options[vllm.DATA_PARALLEL_SIZE]
    if size > per_worker and options[opt.CLUSTER_SIZE] == 1:
        problem = (
            f"names the first device of each worker, and leaves one only {per_worker} of the "
            f"{len(visible)} visible; {size} are needed"
        )
        raise options.error(srv.LOAD_ON_DEVICES, problem)
    return visible[firsts[0] : firsts[0] + per_worker]


def _first_devices(options: LmiOptions, visible: tuple[str, ...]) -> list[int]:
    """Return the index of each worker's first device, where load_on_devices lists them."""
    names = [item.strip().removeprefix("gpu") for item in options[srv.LOAD_ON_DEVICES].split(";")]
    numbers = set(map(str, range(len(visible))))
    indices = [int(name) for name in names if name in numbers]
    if len(set(indices)) < len(names):
        problem = (
            f"names a device twice or one that is not visible; visible: {len(visible) or _NONE}"
        )
        raise options.error(srv.LOAD_ON_DEVICES, problem)
    return indices


def cut_devices(
    options: LmiOptions,
    hardware: Hardware,
    size: int,
    report: Explanation,
    visible: tuple[str, ...],
) -> DeviceGroups:
    """Return the devices of each worker, `size` of them, as CUDA_VISIBLE_DEVICES spells them.

    Of each that there may be: those above minWorkers are started by load.

    Args:
        hardware: with the devices that a worker may have.
        visible: those of the machine.

    Raises:
        OptionError: the bounds of the number of workers cannot be kept.
        PlanError: a worker would span partitions of GPUs.
    """
    least, most = _bounds(options, hardware.kind)
    if 0 < options[most] < options[least]:
        raise options.error(least, f"is more than {most.name}, {options[most]}")
    devices = hardware.devices
    if not devices:
        return ((),) * _on_cpu(options, least, most, report)
    _refuse_partitions(devices, size)
    if size > len(devices):
        nodes = hardware.nodes_for(size)
        report.reasons.append(f"1 worker of {size} devices over {nodes} nodes")
        return (devices[: -(-size // nodes)],)
    groups = _groups(options, hardware, size, visible)
    copies = min(
        len(groups), options[most] or _even_share(groups, options[least], hardware, report)
    )
    if options[vllm.ENABLE_LORA] and copies > 1 and not options.is_set(least):
        copies = 1
        report.reasons.append("1 worker: LMI serves LoRA adapters from one worker")
    if options[least] > copies:
        problem = f"workers of {size} devices do not fit on {len(devices)} devices"
        if _is_listed(options):
            problem = f"workers are more than load_on_devices names: {len(groups)}"
        raise options.error(least, problem)
    _refuse_busy(options, hardware, groups[:copies])
    _note_unused(hardware, copies * size, len(visible), report)
    which = "load_on_devices names their first" if _is_listed(options) else f"{len(devices)} usable"
    report.reasons.append(f"{copies} worker(s) of {size} device(s): {which}")
    return groups[:copies]


def scaling(options: LmiOptions, hardware: Hardware, workers: int, report: Explanation) -> Scaling:
    """Return how many workers always run, and when others start and stop.

    As in LMI the load starts and stops workers where maxWorkers is set and minWorkers is less. On a
    CPU minWorkers is 1 unless it is set. In MPI mode all workers run.
    """
    least, most = _bounds(options, hardware.kind)
    always = options[least] or (workers if hardware.devices else 1)
    fixed = ""
    if options.choice.mode == "mpi":
        fixed = "in MPI mode LMI starts all at once"
    elif not options.is_set(most):
        fixed = f"LMI adds and stops workers where {most.name} is set"
    if always < workers and not fixed:
        return _scaled(options, always, workers, report)
    text = f"{workers} worker(s) run all the time"
    if always < workers:
        report.reasons.append(f"{text}, not {least.name}={always}: {fixed}")
    if options.is_set(srv.MAX_IDLE_TIME):
        report.ignore(srv.MAX_IDLE_TIME.name, text)
    return Scaling()


def _scaled(options: LmiOptions, always: int, workers: int, report: Explanation) -> Scaling:
    made = Scaling(
        min_workers=always,
        most_waiting=2 * options[srv.BATCH_SIZE],
        max_idle_time=options[srv.MAX_IDLE_TIME],
    )
    report.reasons.append(
        f"{always} worker(s) at first, and up to {workers}: one more is started when more than "
        f"{made.most_waiting} requests wait (2 x {srv.BATCH_SIZE.name}), and stopped when it has "
        f"had none for {made.max_idle_time} s ({srv.MAX_IDLE_TIME.name})"
    )
    return made


def load_in_parallel(
    options: LmiOptions, hardware: Hardware, groups: DeviceGroups, weights: int, report: Explanation
) -> bool:
    """Return whether the workers load at once: the user wants it, or the host has the memory."""
    if options.is_set(opt.PARALLEL_LOADING):
        return options[opt.PARALLEL_LOADING]
    needed = weights * len(groups)
    # On a CPU they would fight for the cores.
    if len(groups) == 1 or not all(groups) or not 0 < needed <= hardware.host_memory:
        return False
    report.reasons.append(
        f"the {len(groups)} workers load side by side: the host has {human_bytes(needed)} for the "
        "weights of all"
    )
    return True


def _note_unused(hardware: Hardware, used: int, visible: int, report: Explanation) -> None:
    unused = visible - len(hardware.busy) - used
    if unused > 0 and not hardware.is_shared:
        report.notes.append(f"{unused} of {visible} devices are left unused")


def _even_share(groups: DeviceGroups, least: int, hardware: Hardware, report: Explanation) -> int:
    """Return the most workers that leave as many devices to each of the other models."""
    if hardware.sharers == 1:
        return len(groups)
    report.reasons.append(f"{hardware.sharers} models without maxWorkers share the devices evenly")
    return max(1, least, len(hardware.devices) // hardware.sharers // len(groups[0]))


def _refuse_busy(options: LmiOptions, hardware: Hardware, groups: DeviceGroups) -> None:
    """Refuse listed devices that have too little left by other models."""
    busy = [device for group in groups for device in group if device in hardware.busy]
    if busy:
        problem = f"needs GPU {', '.join(busy)}, which has too little memory left"
        raise options.error(srv.LOAD_ON_DEVICES, problem)


def _refuse_partitions(devices: tuple[str, ...], size: int) -> None:
    if size > 1 and any(name.startswith(PARTITION) for name in devices):
        raise PlanError(
            f"a worker of {size} devices, and the devices are partitions of divided GPUs (MIG): a "
            "process of CUDA's sees one of these; accepted: tensor and pipeline parallel degree 1"
        )


def _on_cpu(options: LmiOptions, least: Option[int], most: Option[int], report: Explanation) -> int:
    """Return how many workers there may be, and say where maxWorkers has no meaning."""
    workers = host_workers(options)
    if options[most] > workers:
        report.notes.append(
            f"{workers} worker(s), not {most.name}={options[most]}: in MPI mode on a CPU "
            f"{least.name} is their number"
        )
    return workers


def host_workers(options: LmiOptions) -> int:
    """Return how many workers a model may have on the CPU.

    LMI's default is one for every OMP_NUM_THREADS cores; an engine uses all cores by itself.
    """
    least, most = (options[each] for each in _bounds(options, "cpu"))
    return (least or 1) if options.choice.mode == "mpi" else max(least or 1, most)


def _is_listed(options: LmiOptions) -> bool:
    return options[srv.LOAD_ON_DEVICES] not in ("*", "-1")


def _groups(
    options: LmiOptions, hardware: Hardware, size: int, visible: tuple[str, ...]
) -> DeviceGroups:
    """Return the devices of each worker that may be: so many from each one that is listed."""
    if _is_listed(options):
        firsts = _first_devices(options, visible)
        return tuple(visible[first : first + size] for first in firsts)
    devices = hardware.devices
    return tuple(devices[first : first + size] for first in range(0, len(devices) - size + 1, size))


def check_memory(options: LmiOptions, hardware: Hardware) -> None:
    """Check LMI's own bounds of memory."""
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


def _bounds(options: LmiOptions, kind: str) -> tuple[Option[int], Option[int]]:
    """Return the options that bound workers on this kind of device: its own, else the general."""
    device = options.choice.spec.implementation.device
    least, most = _BY_KIND[kind if device == "gpu" else device]
    return (
        least if options.is_set(least) else srv.MIN_WORKERS,
        most if options.is_set(most) else srv.MAX_WORKERS,
    )


_SPARE: Final = "spare, which replaces a worker that dies; of vLLM it takes about 1 GiB of memory"
_LOADED: Final = ", and {} more for the model, if these are left"
_NO_SPARE: Final = "no worker of several machines, and none with code of the user's, has a spare"


def loaded_bytes(
    memory: MemoryEstimate | None, copies: int, passed: Collection[str], parallel: Parallel
) -> int:
    """Return what a spare takes for its model; 0 where it loads none before it is needed.

    It loads none where that would take a device or a port of the worker's, and where the memory of
    a rank is not known.
    """
    has_ports = copies > 1 or any(name in passed for name in (EVENTS, *TRANSFERS))
    if memory is None or has_ports or any(parallel.device_groups):
        return 0
    return (memory.weights + max(memory.kv_cache, 0)) * parallel.world_size


def with_spares(
    launch: Launch,
    options: LmiOptions,
    parallel: Parallel,
    loaded: int,
    report: Explanation,
    *,
    has_code: bool,
) -> Launch:
    """Add how many workers have a spare, and what each of these has loaded."""
    spares = options[opt.SPARE_WORKERS]
    if parallel.hosts or parallel.nodes > 1 or has_code:
        if spares not in ("auto", 0):
            report.notes.append(f"{opt.SPARE_WORKERS.name}={spares}: {_NO_SPARE}")
        return launch
    if spares == "auto":
        prepares = options.choice.spec.implementation.prepares and parallel.mode == "python"
        number = int(prepares and parallel.workers == 1)
    else:
        number = min(int(spares), parallel.workers)
    if not number:
        return launch
    more = _LOADED.format(human_bytes(loaded)) if loaded else ""
    report.reasons.append(f"{number} {_SPARE}{more} ({opt.SPARE_WORKERS.name})")
    return replace(launch, spare_workers=number, spare_bytes=loaded)
