"""What takes the memory of a device, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.plan.memory_options import uncounted_arguments
from lmi_backend.printable import human_bytes
from lmi_backend.sizing.config_fields import uncounted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.plan.capacity import Capacity
    from lmi_backend.sizing.memory import MemoryEstimate


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
