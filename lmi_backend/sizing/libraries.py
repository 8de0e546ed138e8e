"""What CUDA, its libraries and CUDA graphs take of a device, outside PyTorch's allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.step import (
    GRAPHS_DEDUCTED,
    HOPPER,
    Release,
    Step,
    deducts_graphs,
    has_second_runner,
)
from lmi_backend.units import GIB, MIB

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts

_FUSED_ALL_REDUCE: Final[Release] = (0, 17)
_LARGER_RUNTIME: Final[Release] = (0, 18)
_LARGER_FLASHINFER: Final[Release] = (0, 22)

# Measured, each isolated by published logs (tests/data/planner).
_RUNTIME_BEFORE, _RUNTIME = int(0.13 * GIB), int(0.25 * GIB)
"""CUDA modules and handles that PyTorch does not count."""
_FLASHINFER_KERNELS = int(0.65 * GIB)
"""What loading FlashInfer's kernels takes when the trial run samples with them."""
FLASHINFER_BESIDE_STATES: Final = int(0.3 * GIB)
"""The same for models that also have layers with a state, whose own kernels are loaded before."""
FLOAT_KERNELS: Final = int(0.45 * GIB)
"""What the first graph loads of the kernels for NVFP4 and its like."""
_NCCL = int(0.42 * GIB)
_ALL_REDUCE_WORKSPACE = int(1.83 * GIB)
"""FlashInfer's fused all-reduce: more than its buffers, as it brings NVLink's multicast up."""
_PIPELINE_RUNTIME = int(0.07 * GIB)
_INSTINCT_RUNTIME_BEFORE, _INSTINCT_RUNTIME = int(1.2 * GIB), int(1.4 * GIB)
"""The same of ROCm on a MI300X: by a log of 0.11 and one of 0.29."""
INSTINCT_GRAPHS: Final = 3 * GIB
"""What graphs take more on a MI300X: by two logs of one model."""
_GRAPHS_BASE, _GRAPH, _GRAPH_LAYER = 40 * MIB, 3.3 * MIB, 0.145 * MIB


def non_torch(facts: ModelFacts, step: Step, *, tensor: int, pipeline: int) -> int:
    """Return the bytes of a device that are allocated outside PyTorch's allocator.

    NCCL's first buffers are older than vLLM's snapshot of the free memory, so they are not in it.
    """
    is_newer = step.release >= _LARGER_RUNTIME
    if step.is_instinct:
        return _INSTINCT_RUNTIME if is_newer else _INSTINCT_RUNTIME_BEFORE
    if pipeline > 1 and tensor == 1:
        return _PIPELINE_RUNTIME
    found = _RUNTIME if is_newer else _RUNTIME_BEFORE
    if (
        step.release >= _LARGER_FLASHINFER
        and step.samples_with_flashinfer
        and not has_second_runner(step, facts)
    ):
        found += FLASHINFER_BESIDE_STATES if facts.states.layers else _FLASHINFER_KERNELS
    if tensor == 1:
        return found
    if step.capability // 10 != HOPPER // 10:
        # Buffers of NVLink's multicast: logs of L40S, RTX PRO 6000 and GB200 have none.
        return found
    return found + (_ALL_REDUCE_WORKSPACE if _fuses_all_reduce(step, pipeline) else _NCCL)


def cuda_graphs(facts: ModelFacts, step: Step, *, layers: int) -> int:
    """Return about the bytes vLLM expects its CUDA graphs to take; 0 where it deducts none.

    Where the second runner deducts none, logs of quantised models and of stages lack about as much
    all the same; those of others do not.
    """
    if step.release < GRAPHS_DEDUCTED:
        return 0
    is_plain = not facts.quantization and layers == facts.num_layers
    if is_plain and not deducts_graphs(facts, step):
        return 0
    return graph_bytes(facts, step, layers=layers)


def graph_bytes(facts: ModelFacts, step: Step, *, layers: int) -> int:
    """Return about the bytes that CUDA graphs take.

    Each graph takes some bytes for itself and some for each layer's kernels. vLLM measures two
    graphs of each mode and multiplies. So the same model's figures differ by 0.2 GiB and more
    between runs.
    """
    if not step.graphs:
        return 0
    each = _GRAPH + layers * _GRAPH_LAYER
    kernels = FLOAT_KERNELS if facts.has_4_bit_floats else 0
    kernels += INSTINCT_GRAPHS if step.is_instinct else 0
    return _GRAPHS_BASE + kernels + int(_graph_count(step) * each)


def _graph_count(step: Step) -> int:
    """Return how many graphs are captured: of mixed batches, and of those that only decode."""
    largest = step.tokens if step.captured else min(2 * step.sequences, 512)
    sizes = step.captured or (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
    return sum((size <= largest) + (size <= step.sequences) for size in sizes)


def _fuses_all_reduce(step: Step, pipeline: int) -> bool:
    return pipeline == 1 and step.release >= _FUSED_ALL_REDUCE
