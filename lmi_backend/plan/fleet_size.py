"""How many replicas a load needs: reckoned from the plan of one, and a GPU's two speeds.

A step of a worker reads its weights and the cache of all that it generates for, and computes a
token for each; a prompt is computed between the steps. `GpuSpeed` and `assumptions` say the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import PlanError

if TYPE_CHECKING:
    from lmi_backend.plan.engine_plan import EnginePlan
    from lmi_backend.sizing.memory import MemoryEstimate

_COMPUTE_SHARE: Final = 0.4
"""Of a GPU's computing speed that prompts reach."""
_MEMORY_SHARE: Final = 0.6
"""Of a GPU's memory speed that a step reaches."""
_BUSIEST: Final = 0.8
"""Share of its time for which a replica is planned to be busy with prompts, and its cache full."""
_MOST_REPLICAS: Final = 100_000
_ROUNDS: Final = 100


@dataclass(frozen=True, kw_only=True)
class GpuSpeed:
    """Of one GPU, as its data sheet has it; by default an H100's with SXM."""

    tflops: float = 989.0
    """Of 16-bit numbers, dense."""
    terabytes: float = 3.35
    """Of memory, a second."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What clients ask of the whole fleet."""

    requests: float
    """A second."""
    prompt_tokens: int
    answer_tokens: int
    first_token: float
    """Seconds that the first token may take."""


@dataclass(frozen=True)
class Replica:
    """What one replica does at its share of a load."""

    running: float
    """Requests at once."""
    prompt_share: float
    """Of its time that prompts take."""
    first_token: float
    """Seconds."""
    step: float
    """Seconds from a token of a request to its next."""


@dataclass(frozen=True)
class FleetSize:
    """How many, and why not fewer."""

    replicas: int
    replica: Replica
    limit: str
    """What one replica less would not keep."""
    tokens: float
    """Tokens of all running requests of a replica, at their longest."""


def size_fleet(plan: EnginePlan, load: Load, speed: GpuSpeed) -> FleetSize:
    """Return the smallest number of replicas that carries a load.

    Raises:
        PlanError: no number does, or the plan does not say what a replica holds.
    """
    memory, places = plan.memory, plan.worker_requests
    if memory is None or not plan.parallel.device_groups[0]:
        raise PlanError("a fleet is reckoned for GPUs of a known memory: --gpus, --gpu-memory")
    length = load.prompt_tokens + load.answer_tokens
    if length > memory.num_tokens:
        raise PlanError(f"one request has {length} tokens; {memory.num_tokens} fit at once")
    limit = "one is the least"
    replicas = 1
    while replicas <= _MOST_REPLICAS:
        found = _replica(memory, places, load, speed, load.requests / replicas)
        too_much = _too_much(memory, places, load, found)
        if not too_much:
            return FleetSize(replicas, found, limit, found.running * length)
        limit = too_much
        # Few are counted one by one, many in steps of a hundredth.
        replicas += max(1, replicas // 100)
    raise PlanError(f"no number of replicas carries it: {limit}")


def _replica(
    memory: MemoryEstimate, places: int, load: Load, speed: GpuSpeed, arrivals: float
) -> Replica:
    """Return what one does at so many requests a second; all is infinite where it falls behind."""
    compute = speed.tflops * 1e12 * _COMPUTE_SHARE
    reading = speed.terabytes * 1e12 * _MEMORY_SHARE
    # Two operations a weight, of two bytes; of one byte a GPU does twice as many.
    token = memory.weights / compute
    prompt = token * load.prompt_tokens
    prompt_share = arrivals * prompt
    if prompt_share >= 1:
        return Replica(math.inf, prompt_share, math.inf, math.inf)
    cached = memory.block_bytes / memory.block_size * (load.prompt_tokens + load.answer_tokens / 2)
    running = 1.0
    step = 0.0
    for _ in range(_ROUNDS):
        alone = memory.weights / reading + running * (cached / reading + token)
        step = alone / (1 - prompt_share)
        running = arrivals * (load.answer_tokens * step + prompt)
        if running > places:
            break
    waits = prompt * prompt_share / (1 - prompt_share)
    return Replica(running, prompt_share, waits + prompt + step, step)


def _too_much(memory: MemoryEstimate, places: int, load: Load, found: Replica) -> str:
    if found.prompt_share > _BUSIEST:
        return f"prompts would take {found.prompt_share:.0%} of a replica's time"
    if found.first_token > load.first_token:
        return f"the first token would take {found.first_token:.2f} s"
    if found.running > places:
        return f"more than {places} requests would run at once"
    tokens = found.running * (load.prompt_tokens + load.answer_tokens)
    if tokens > _BUSIEST * memory.num_tokens:
        return f"{tokens:.0f} tokens would be held, of {memory.num_tokens} that fit"
    return ""


def fleet_lines(plan: EnginePlan, load: Load, speed: GpuSpeed, gpus_per_node: int) -> Iterator[str]:
    """Yield how many replicas and nodes a load needs, and why, a line each.

    Raises:
        PlanError: as `size_fleet`, or a replica takes more GPUs than a node has.
    """
    size = size_fleet(plan, load, speed)
    devices = len(plan.parallel.device_groups[0])
    yield f"fleet       {size.replicas} replicas of {devices} GPUs"
    if gpus_per_node:
        on_a_node = gpus_per_node // devices
        if not on_a_node:
            raise PlanError(f"a replica takes {devices} GPUs; --gpus-per-node is {gpus_per_node}")
        nodes = math.ceil(size.replicas / on_a_node)
        yield f"nodes       {nodes} of {gpus_per_node} GPUs, {on_a_node} replicas on each"
    one = size.replica
    yield (
        f"each        {one.running:.0f} requests at once, {size.tokens:.0f} tokens held; prompts "
        f"take {one.prompt_share:.0%} of its time"
    )
    yield f"expected    first token {one.first_token:.2f} s, then {1 / one.step:.0f} tokens/s each"
    yield f"because     with fewer: {size.limit}"
    yield from (f"assumed     {line}" for line in assumptions(speed))


def assumptions(speed: GpuSpeed) -> Iterator[str]:
    """Yield what the reckoning takes for granted."""
    yield (
        f"a GPU computes {speed.tflops:g} TFLOPS of 16-bit numbers and reads "
        f"{speed.terabytes:g} TB/s (--gpu-tflops, --gpu-bandwidth); prompts reach "
        f"{_COMPUTE_SHARE:.0%} of the first, steps {_MEMORY_SHARE:.0%} of the second"
    )
    yield "weights of 16 or 8 bits; of 4 bits prompts take longer, of a mixture of experts less"
    yield "requests come evenly, none finds its prompt in the cache, and no replica may be lost"
    yield f"a replica is planned for {_BUSIEST:.0%} of its time and cache; add what restarts take"
