"""What is expected of a device's memory, in the terms of vLLM's own log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.sizing.step import BUFFERS_DEDUCTED, GRAPHS_DEDUCTED, Release
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.sizing.memory import MemoryEstimate

_CAPACITY_IN_ONE_LINE: Release = (0, 28)
_NAMES_THE_DEVICE: Release = (0, 30)


def memory_lines(memory: MemoryEstimate, device_memory: int) -> Iterator[str]:
    """Yield the lines that the planned release of vLLM would log for these figures.

    Args:
        memory: what is expected of the device with the least left.
        device_memory: bytes of the device; 0 on a CPU, where vLLM is given the cache's space.
    """
    if device_memory:
        yield from _deductions(memory, device_memory)
    yield f"Available KV cache memory: {_gib(memory.kv_cache)} GiB"
    if not memory.num_blocks:
        return
    named = memory.release >= _NAMES_THE_DEVICE and not device_memory
    size = f"{'CPU' if named else 'GPU'} KV cache size: {memory.logged_tokens:,} tokens"
    most = (
        f"Maximum concurrency for {memory.length:,} tokens per request: {memory.concurrency:.2f}x"
    )
    if memory.release >= _CAPACITY_IN_ONE_LINE:
        yield f"{size}, {most}"
    else:
        yield size
        yield most


def _deductions(memory: MemoryEstimate, device_memory: int) -> Iterator[str]:
    weights, activations = _gib(memory.weights), _gib(memory.activations)
    consumed = _gib(memory.weights + memory.overhead + memory.buffers)
    others, graphs = _gib(memory.overhead), _gib(memory.cuda_graphs)
    is_consumption = memory.release >= BUFFERS_DEDUCTED
    yield f"Model loading took {weights} GiB memory"
    total = _gib(memory.weights + memory.step - memory.cuda_graphs)
    if is_consumption:
        rest = f"total consumed (from mem_get_info): {consumed}GiB"
        usage = f"{consumed} GiB for consumed memory (weights + non-torch)"
    else:
        rest = f"non-torch forward increase memory: {others}GiB"
        usage = f"{weights} GiB for weight"
    yield (
        f"Total non KV cache memory: {total}GiB; torch peak memory increase: {activations}GiB; "
        f"{rest}; weights memory: {weights}GiB."
    )
    if memory.release >= GRAPHS_DEDUCTED and memory.cuda_graphs:
        yield f"Estimated CUDA graph memory: {graphs} GiB total"
    budget = memory.weights + memory.step + memory.kv_cache
    between = "" if is_consumption else f", {others} GiB for non-torch memory"
    yield (
        f"Desired GPU memory utilization is ({budget / device_memory:.2f}, {_gib(budget)} GiB). "
        f"Actual usage is {usage}, {activations} GiB for peak activation{between}, and {graphs} "
        "GiB for CUDAGraph memory."
    )


def _gib(count: int) -> str:
    """Write bytes as vLLM does, "14.99"."""
    return f"{round(count / GIB, 2)}"
