"""Several models on one machine: each is planned with what the others leave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lmi_backend.errors import ConfigurationError
from lmi_backend.options.table import server as srv
from lmi_backend.plan.allocations import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import EnginePlan
    from lmi_backend.plan.hardware import Hardware

_MOST = (srv.MAX_WORKERS, srv.GPU_MAX_WORKERS)
_LISTED, _BOUNDED, _OPEN = range(3)


def plan_together(
    models: Mapping[str, LmiOptions],
    hardware: Hardware,
    plan: Callable[[LmiOptions, Hardware], EnginePlan],
) -> dict[str, EnginePlan | ConfigurationError]:
    """Plan models that are served side by side; a refused model leaves its devices to the others.

    First come those that name their devices, then those with a bound of workers. The others share
    what is left evenly, in their order.

    Args:
        models: name to options.
        hardware: with what still others use.
        plan: plans one of them.
    """
    order = sorted(models, key=lambda name: _claim(models[name]))
    sharers = sum(_claim(options) == _OPEN for options in models.values())
    hardware = replace(hardware, is_shared=len(models) > 1)
    made: dict[str, EnginePlan | ConfigurationError] = {}
    for name in order:
        is_open = _claim(models[name]) == _OPEN
        try:
            found = plan(models[name], replace(hardware, sharers=sharers if is_open else 1))
        except ConfigurationError as error:
            made[name] = error
        else:
            made[name] = found
            allocation = Allocation.of(name, found.parallel, hardware.gpus)
            hardware = replace(
                hardware,
                allocations=(*hardware.allocations, allocation),
                host_memory=_left_on_host(found, hardware.host_memory),
            )
        sharers -= is_open
    return {name: made[name] for name in models}


def _left_on_host(plan: EnginePlan, memory: int) -> int:
    """Return the bytes of the host's memory that a plan leaves; 0 is for unknown."""
    parallel = plan.parallel
    if not memory or not plan.memory or any(parallel.device_groups):
        return memory
    each = plan.memory.weights + plan.memory.kv_cache
    return max(1, memory - each * parallel.workers * parallel.world_size)


def _claim(options: LmiOptions) -> int:
    """Return how precisely a model says which devices it wants."""
    if options[srv.LOAD_ON_DEVICES] != "*":
        return _LISTED
    return _BOUNDED if any(options.is_set(bound) for bound in _MOST) else _OPEN
