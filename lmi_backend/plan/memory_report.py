"""What takes the memory of a device: in sentences, and in the terms of vLLM's own log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.plan.memory_options import uncounted_arguments
from lmi_backend.printable import GIB, human_bytes
from lmi_backend.sizing.config_fields import uncounted
from lmi_backend.sizing.step import BUFFERS_DEDUCTED, GRAPHS_DEDUCTED, Release

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.plan.capacity import Capacity
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


def describe(capacity: Capacity, estimate: MemoryEstimate) -> list[str]:
    lines = []
    if capacity.hardware.devices:
        lines.append(
            f"memory per device: {human_bytes(estimate.weights)} weights "
            f"({capacity.facts.weights.source}), "
            f"{human_bytes(estimate.step)} for a step, "
            f"{human_bytes(max(estimate.kv_cache, 0))} KV cache; "
            f"{human_bytes(capacity.budget)} usable, {capacity.utilization:.0%} of "
            f"{human_bytes(capacity.hardware.device_memory)}"
        )
    if estimate.draft is not None:
        lines.append(str(estimate.draft))
    if capacity.hardware.devices:
        lines += _uncertain(capacity)
    tokens = estimate.num_tokens
    if estimate.block_bytes and capacity.hardware.devices and capacity.counts_as_vllm:
        least, most = estimate.token_range
        lines.append(
            f"KV cache, by what is not known for certain: between {least} and {most} tokens"
        )
        if not capacity.surely_fits(estimate):
            lines.append(
                "it may not start: by the lower of these not one request of the longest kind fits"
            )
    if estimate.block_bytes:
        each = tokens // capacity.max_running
        longest = f", or {estimate.concurrency:.1f} of {estimate.length}"
        lines.append(
            f"KV cache: {estimate.num_blocks} blocks of {estimate.block_size}, "
            f"{tokens} tokens fit at once: {each} for each of {capacity.max_running} requests"
            f"{longest if estimate.length > 1 else ''}"
        )
    return lines


def _uncertain(capacity: Capacity) -> Iterator[str]:
    """Yield what is not counted, and what is not written."""
    if text := uncounted(capacity.facts.unread):
        yield text
    if name := capacity.facts.unknown_class:
        yield f"{name} is not a known model_type: its size is read by the usual fields"
    names = uncounted_arguments(capacity.options, capacity.release)
    if capacity.counts_as_vllm and names:
        yield f"not counted: what these options take or save: {', '.join(names)}"
    if capacity.facts.assumed:
        names = capacity.facts.assumed
        yield f"config.json lacks {', '.join(names)}: the defaults of its class apply"
