"""What one step of vLLM takes in addition to weights and cache, by release and device.

vLLM finds it by a trial run: the most tokens of a step, then one row of logits for each sequence.
CUDA, its libraries and CUDA graphs take memory outside PyTorch's allocator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.printable import GIB, MIB

if TYPE_CHECKING:
    from lmi_backend.sizing.kv_layers import DeltaShape, StateLayers
    from lmi_backend.sizing.model_facts import ModelFacts


Release = tuple[int, ...]
"""Major and minor number of a release of vLLM, and the third where it is not 0."""

NEWEST: Final[Release] = (0, 32)
"""The release a plan is made for where none is known."""

# Activations are 16-bit numbers whatever the weights are.
_ACTIVATION_BYTES = 2

# Bytes for each number of the logits that are alive at once.
_LOGITS = 2
"""The gathered logits, 16 bits, which is all the second model runner's trial run makes."""
_SAMPLED = _LOGITS + 3 * 4
"""Their float32 copy, the probabilities, and their noise or their masked copy."""
_SORTED = _LOGITS + 4 + (4 + 8) + 8 + (4 + 8)
"""Copy; sorted values and indices; PyTorch's reverse indices; CUB's second buffers."""
_REJECTED = 4
"""Two more 16-bit copies, of the sampled and of the guessed tokens' logits."""
_COUNTED = 4 + 1 / 8
"""What the second runner keeps for penalties: a number and a bit for each token and sequence."""

# What each release does first, read in the sources of 0.16 to 0.32.
_TRITON_SAMPLER: Final[Release] = (0, 17)
GRAPHS_DEDUCTED: Final[Release] = (0, 20)
_FLASHINFER_SAMPLER: Final[Release] = (0, 21)
_SECOND_RUNNER: Final[Release] = (0, 22)
_STATES_CACHED: Final[Release] = (0, 28)
_SECOND_RUNNER_FOR_DENSE: Final[Release] = (0, 25)
BUFFERS_DEDUCTED: Final[Release] = (0, 27)
_SECOND_RUNNER_FOR_ALL: Final[Release] = (0, 29)
_SECOND_RUNNER_DEDUCTS_GRAPHS: Final[Release] = (0, 29)
_FIRST_ARCHITECTURES = (
    (_SECOND_RUNNER, {"Qwen3ForCausalLM"}),
    ((0, 23), {"LlamaForCausalLM", "MistralForCausalLM"}),
    ((0, 24), {"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"}),
)

# Compute capabilities, times ten.
AMPERE: Final = 80
HOPPER: Final = 90

# Measured, by published logs (tests/data/planner).
DELTA_WIDTHS: Final = 10
"""Times the width of its values that a token takes in a gated delta net, fitted to four logs."""
_CHUNK = 64
"""Tokens that a gated delta net computes together."""
_MAMBA_CHUNK = 128
"""Tokens that Mamba-2 computes together, in the files of most models."""
_SMALL_BUFFERS = 16 * MIB
"""Positions, slots, tables, random numbers: what does not depend on the model."""
_CUBLAS_WORKSPACE = {HOPPER: 32 * MIB, AMPERE: 8 * MIB}
_MULTIPROCESSORS = {HOPPER: 132, AMPERE: 108}
"""Each has a row of the vocabulary in Triton's sampler."""


@dataclass(frozen=True, kw_only=True)
class Step:
    tokens: int
    """Most tokens of a step, `max_num_batched_tokens`."""
    sequences: int
    """Most sequences of a step, `max_num_seqs`."""
    release: Release = NEWEST
    capability: int = HOPPER
    """Compute capability of the device, times ten."""
    graphs: bool = True
    """Whether CUDA graphs are captured: not with `enforce_eager`."""
    flashinfer_sampler: bool | None = None
    """Whether FlashInfer samples; None is what the release does by itself."""

    captured: tuple[int, ...] = ()
    """Sizes of batches whose graphs are captured; empty for the release's own."""
    partition: tuple[int, ...] = ()
    """Layers of each stage; empty if they are shared out evenly."""
    prefix_caching: bool | None = None
    """Whether prompts' beginnings are kept; None is what the release does by itself."""

    @property
    def caches_states(self) -> bool:
        """Whether the states of hybrid models are kept for the beginnings of prompts."""
        if self.prefix_caching is None:
            return self.release >= _STATES_CACHED
        return self.prefix_caching

    @property
    def samples_with_flashinfer(self) -> bool:
        if self.flashinfer_sampler is None:
            return self.release >= _FLASHINFER_SAMPLER
        return self.flashinfer_sampler


def has_second_runner(step: Step, facts: ModelFacts) -> bool:
    """Tell whether vLLM's second model runner serves the model unless told otherwise."""
    shape = facts.shape
    if step.release >= _SECOND_RUNNER_FOR_ALL:
        return True
    named = {
        name for first, names in _FIRST_ARCHITECTURES if step.release >= first for name in names
    }
    if shape.architecture in named:
        return True
    is_hybrid = facts.cache.layers < shape.num_layers and not shape.is_encoder_decoder
    return step.release >= _SECOND_RUNNER_FOR_DENSE and not shape.num_experts and not is_hybrid


def peak_activation(
    facts: ModelFacts, step: Step, *, tensor: int, is_staged: bool = False, samples: bool = True
) -> int:
    """Return the bytes at the peak of the trial run.

    Either the layers' pass has the peak, or the sampling after it, which keeps the last hidden
    states. Workspaces for experts stay from the one to the other.

    Args:
        is_staged: whether stages send one another their hidden states.
        samples: whether the device has the last stage.
    """
    hidden = facts.shape.hidden_size * step.tokens * _ACTIVATION_BYTES
    # Before a layer's block, after it, and in it; stages have two to send and one to receive.
    hidden_states = (6 if is_staged else 3) * hidden
    drafting = _drafting(facts, step, tensor) if samples else 0.0
    layers = max(hidden_states + _widest(facts, step.tokens, tensor), drafting)
    sampling = hidden + _sampling(facts, step) if samples else 0
    if facts.shape.vision_parameters:
        # The images' embeddings, of a whole step's tokens, are there throughout.
        layers, sampling = layers + hidden, sampling + hidden
    fixed = _SMALL_BUFFERS + _by_capability(_CUBLAS_WORKSPACE, step)
    return int(max(layers, sampling) + _expert_workspace(facts, step.tokens, tensor) + fixed)


def deducted_buffers(facts: ModelFacts, step: Step) -> int:
    """Return the bytes of what is made before the trial run, where vLLM deducts it."""
    if step.release < BUFFERS_DEDUCTED or not has_second_runner(step, facts):
        return 0
    return int(step.sequences * facts.shape.vocab_size * _COUNTED)


def deducts_graphs(facts: ModelFacts, step: Step) -> bool:
    """Tell whether vLLM certainly deducts graphs: its second runner did not from the start."""
    return step.release >= _SECOND_RUNNER_DEDUCTS_GRAPHS or not has_second_runner(step, facts)


def _sampling(facts: ModelFacts, step: Step) -> int:
    logits = min(step.sequences, step.tokens) * facts.shape.vocab_size
    if has_second_runner(step, facts):
        return logits * _LOGITS
    # The trial run also rejects one guess of each sequence.
    rejected = logits * _REJECTED if facts.drafted_tokens else 0
    if step.samples_with_flashinfer:
        return logits * _SAMPLED + rejected
    if step.release < _TRITON_SAMPLER:
        return logits * _SORTED + rejected
    rows = min(_by_capability(_MULTIPROCESSORS, step), step.sequences)
    return logits * _SAMPLED + rows * facts.shape.vocab_size * 4 + rejected


def _drafting(facts: ModelFacts, step: Step, tensor: int) -> float:
    """Return the bytes of the pass of what drafts, and of the hidden states that it begins with."""
    if facts.draft is None or not facts.draft.step_values:
        return 0.0
    values = facts.shape.hidden_size + facts.draft.step_values / tensor
    return step.tokens * values * _ACTIVATION_BYTES


def _widest(facts: ModelFacts, tokens: int, tensor: int) -> int:
    """Return the bytes of the widest part of a layer, without its in- and output.

    Of attention these are queries, keys, values and result. Of a gated MLP they are gate and up,
    then their product; where it computes in 8 bits, that once more.
    """
    shape = facts.shape
    kv_heads = max(1, shape.num_kv_heads // tensor)
    attention = shape.head_dim * (2 * shape.num_heads / tensor + 2 * kv_heads)
    mlp = 3 * shape.intermediate_size / tensor
    if shape.has_8_bit_activations:
        mlp += shape.intermediate_size / tensor / _ACTIVATION_BYTES
    if shape.num_experts and not shape.has_dense_layers:
        mlp = 0.0
    delta = _delta_values(facts.cache.states.delta) / tensor if facts.cache.states.delta else 0.0
    state = _mamba_values(facts.cache.states) / tensor if facts.cache.states.checkpoints else 0.0
    return int(tokens * max(attention, mlp, delta, state) * _ACTIVATION_BYTES)


def _mamba_values(states: StateLayers) -> float:
    """Return the 16-bit numbers a token has in a Mamba-2 mixer, at most.

    What goes into it, with its gate, what its convolution makes, and its result. Each chunk of
    tokens hands on a state of 32 bits.
    """
    return 4 * states.channels + 2 * states.numbers / _MAMBA_CHUNK


def _delta_values(shape: DeltaShape) -> float:
    """Return the 16-bit numbers a token has in a gated delta net.

    - Queries, keys and values: before their convolution, after it, and once more for the kernels.
    - Ten times the values' width: gate, result, and what the chunks' kernels pass on. This is by
      the logs of four such models on three kinds of GPU.
    - For each head: a part of its chunk's state, and of two matrices of 32 bits between the chunk's
      tokens.
    """
    heads = shape.value_heads
    chunk = heads * (shape.key_dim * shape.value_dim / _CHUNK + 2 * _CHUNK * 2)
    return 3 * shape.convolved + DELTA_WIDTHS * heads * shape.value_dim + chunk


def _expert_workspace(facts: ModelFacts, tokens: int, tensor: int) -> int:
    """Return the bytes of the two buffers that all layers' experts share.

    MXFP4's kernels have none; gated ones of other formats of 4 bits want them twice.
    """
    shape = facts.shape
    if not shape.num_experts or shape.quantization == "mxfp4":
        return 0
    width = shape.expert_intermediate_size / tensor
    rows = tokens * shape.experts_per_token
    first = max(width, shape.hidden_size)
    second = max((2 if shape.is_gated else 1) * width, shape.hidden_size)
    copies = 2 if shape.has_4_bit_floats and shape.is_gated else 1
    return int(rows * (first + second) * _ACTIVATION_BYTES * copies)


def _by_capability(values: dict[int, int], step: Step) -> int:
    return values[HOPPER if step.capability >= HOPPER else AMPERE]


_FUSED_ALL_REDUCE: Final[Release] = (0, 17)
_LARGER_RUNTIME: Final[Release] = (0, 18)
_LARGER_FLASHINFER: Final[Release] = (0, 22)

# Measured, each isolated by published logs (tests/data/planner).
_OLDER_RUNTIME, _RUNTIME = int(0.13 * GIB), int(0.25 * GIB)
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
_GRAPHS_BASE, _GRAPH, _GRAPH_LAYER = 40 * MIB, 3.3 * MIB, 0.145 * MIB


def non_torch(facts: ModelFacts, step: Step, *, tensor: int, pipeline: int) -> int:
    """Return the bytes of a device that are allocated outside PyTorch's allocator.

    NCCL's first buffers are older than vLLM's snapshot of the free memory, so they are not in it.
    """
    if pipeline > 1 and tensor == 1:
        return _PIPELINE_RUNTIME
    size = _RUNTIME if step.release >= _LARGER_RUNTIME else _OLDER_RUNTIME
    if (
        step.release >= _LARGER_FLASHINFER
        and step.samples_with_flashinfer
        and not has_second_runner(step, facts)
    ):
        size += FLASHINFER_BESIDE_STATES if facts.cache.states.layers else _FLASHINFER_KERNELS
    if tensor == 1:
        return size
    if step.capability // 10 != HOPPER // 10:
        # Buffers of NVLink's multicast: logs of L40S, RTX PRO 6000 and GB200 have none.
        return size
    is_fused = pipeline == 1 and step.release >= _FUSED_ALL_REDUCE
    return size + (_ALL_REDUCE_WORKSPACE if is_fused else _NCCL)


def cuda_graphs(facts: ModelFacts, step: Step, *, layers: int) -> int:
    """Return about the bytes vLLM expects its CUDA graphs to take; 0 where it deducts none.

    Where the second runner deducts none, logs of quantised models and of stages lack about as much
    all the same; those of others do not.
    """
    if step.release < GRAPHS_DEDUCTED:
        return 0
    is_plain = not facts.shape.quantization and layers == facts.shape.num_layers
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
    kernels = FLOAT_KERNELS if facts.shape.has_4_bit_floats else 0
    return _GRAPHS_BASE + kernels + int(_graph_count(step) * each)


def _graph_count(step: Step) -> int:
    """Return how many graphs are captured: of mixed batches, and of those that only decode."""
    largest = step.tokens if step.captured else min(2 * step.sequences, 512)
    sizes = step.captured or (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
    return sum((size <= largest) + (size <= step.sequences) for size in sizes)
