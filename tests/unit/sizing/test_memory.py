"""What a device holds, what a LoRA adapter takes, and how sure that is."""

from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import GIB
from lmi_backend.sizing.kv_layers import DeltaShape, StateLayers
from lmi_backend.sizing.memory import (
    CacheKind,
    MemoryEstimate,
    adapter_bytes,
    cache_layout,
    estimate_memory,
    uncertainty,
)
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.step import Step
from tests.support.records.facts import LLAMA_3_8B, with_fields

TINY_LLAMA = with_fields(
    LLAMA_3_8B, num_layers=3, layers=3, hidden_size=128, num_heads=4, num_kv_heads=4, head_dim=32,
    values=256, vocab_size=512, intermediate_size=256, dtype="float32", total=2_494_976,
)  # fmt: skip
TINY_GROUPED = with_fields(TINY_LLAMA, num_layers=5, layers=5, num_kv_heads=2, values=128)
DEEPSEEK_V3 = with_fields(
    LLAMA_3_8B,
    num_layers=61,
    layers=61,
    hidden_size=7168,
    num_heads=128,
    num_kv_heads=128,
    head_dim=192,
    values=576,
    is_mla=True,
    vocab_size=129280,
    total=688_586_727_753,
    num_experts=256,
    experts_per_token=8,
    expert_intermediate_size=2048,
    intermediate_size=18432,
)
STEP = Step(tokens=8192, sequences=256)
ROTATIONS = 8192 * 128 * 2


def estimate(facts: ModelFacts = LLAMA_3_8B, **changes: Any) -> MemoryEstimate:
    names = ("tokens", "sequences", "release", "capability")
    step = {name: changes.pop(name) for name in names if name in changes}
    degrees = (changes.pop("tensor", 1), changes.pop("pipeline", 1))
    cache = {name: changes.pop(name) for name in ("dtype_bytes", "block_size") if name in changes}
    return estimate_memory(
        facts,
        degrees=degrees,
        budget=changes.pop("budget", 72 * GIB),
        cache=CacheKind(**({"dtype_bytes": 2} | cache)),
        step=replace(STEP, **step),
        **changes,
    )


def blocks_of(
    space: int,
    facts: ModelFacts,
    degrees: tuple[int, int] = (1, 1),
    dtype_bytes: int = 2,
    block_size: int = 16,
) -> int:
    cache = CacheKind(dtype_bytes=dtype_bytes, block_size=block_size)
    return space // cache_layout(facts, degrees=degrees, cache=cache, step=STEP).block_bytes


@pytest.mark.parametrize(
    ("facts", "kv_bytes", "kv_dtype_bytes", "block_size", "tokens"),
    [
        pytest.param(TINY_LLAMA, GIB, 2, 128, 699_008, id="VLLM_CPU_KVCACHE_SPACE=1"),
        pytest.param(TINY_LLAMA, 300_000_000, 4, 32, 97_632, id="float32"),
        pytest.param(TINY_GROUPED, GIB, 2, 16, 838_848, id="grouped heads"),
    ],
)
def test_as_many_tokens_fit_as_vllm_reports(
    facts: ModelFacts, kv_bytes: int, kv_dtype_bytes: int, block_size: int, tokens: int
) -> None:
    """Tokens are what vLLM 0.32.0 on a CPU writes for these."""
    blocks = blocks_of(kv_bytes, facts, dtype_bytes=kv_dtype_bytes, block_size=block_size)
    assert blocks * block_size == tokens


@pytest.mark.parametrize(("pipeline", "layers"), [(1, 32), (2, 16), (3, 11), (5, 7), (32, 1)])
def test_the_fullest_stage_decides(pipeline: int, layers: int) -> None:
    blocks = blocks_of(GIB, LLAMA_3_8B, (1, pipeline))
    assert blocks == GIB // (16 * 2048 * layers * 2)


def test_layers_without_a_cache_take_none() -> None:
    hybrid = with_fields(LLAMA_3_8B, layers=8)
    assert estimate(hybrid).block_bytes * 4 == estimate().block_bytes
    assert estimate(hybrid, pipeline=2).block_bytes * 8 == estimate().block_bytes


def test_the_parts_make_up_the_budget() -> None:
    found = estimate()
    parts = found.weights + found.step + found.kv_cache
    assert parts == 72 * GIB
    beside = found.overhead + found.cuda_graphs + found.buffers
    assert found.step == found.activations + beside
    assert found.as_dict()["num_tokens"] == found.num_tokens
    assert found.num_blocks == found.kv_cache // found.block_bytes
    assert found.num_tokens == found.num_blocks * 16
    assert found.block_bytes == 16 * 131_072


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_tensor_parallel_splits_all_weights(tensor: int) -> None:
    found = estimate(tensor=tensor)
    assert found.weights == pytest.approx(LLAMA_3_8B.weights.total / tensor + ROTATIONS, abs=1)
    assert found.activations < estimate().activations


def test_embeddings_and_head_are_on_the_outer_stages() -> None:
    matrix = 128256 * 4096 * 2
    layer = (LLAMA_3_8B.weights.total - 2 * matrix) // 32
    assert estimate(pipeline=2).weights == pytest.approx(16 * layer + matrix + ROTATIONS, abs=32)
    assert estimate(pipeline=4).weights == pytest.approx(8 * layer + matrix + ROTATIONS, abs=32)
    # 8, 8, 8, 8 of 33 layers and one more before the last: more cache and no matrix there.
    longer = with_fields(LLAMA_3_8B, num_layers=33, layers=33)
    assert estimate(longer, pipeline=4).block_bytes == 16 * 2048 * 9 * 2


def test_the_rotations_of_ten_million_positions_are_counted() -> None:
    scout = with_fields(LLAMA_3_8B, max_position_embeddings=10_485_760)
    assert estimate(scout, tensor=4).weights >= 2.5 * GIB + LLAMA_3_8B.weights.total / 4


def test_experts_in_mxfp4_are_as_wide_as_their_kernels_want() -> None:
    """gpt-oss: 2880 becomes 2944, and 3072 for Triton's on Hopper."""
    oss = with_fields(
        LLAMA_3_8B, quantization="mxfp4", num_experts=32, expert_intermediate_size=2880
    )
    for release, padding in (((0, 11), 192), ((0, 30), 64)):
        added = 3 * 32 * 32 * 4096 * padding * 4.25 / 8
        plain = estimate(release=release).weights
        assert estimate(oss, release=release).weights == pytest.approx(plain + added, abs=2)
    # Marlin's kernels want a hidden vector of 256 numbers or a multiple, too.
    narrow = with_fields(oss, hidden_size=2880)
    assert estimate(narrow, capability=80).weights > estimate(narrow, release=(0, 11)).weights


def test_a_model_that_does_not_fit_caches_nothing() -> None:
    found = estimate(budget=8 * GIB)
    assert found.kv_cache < 0
    assert (found.num_blocks, found.num_tokens) == (0, 0)


def test_weights_smaller_than_their_embeddings_are_still_counted_once() -> None:
    odd = with_fields(LLAMA_3_8B, total=1_000_000)
    assert estimate(odd).weights == 1_000_000 + ROTATIONS


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"pipeline_parallel_degree=33: .* layers \(32\)"):
        estimate(pipeline=33)


def test_an_adapter_is_beside_each_matrix() -> None:
    found = adapter_bytes(LLAMA_3_8B, 32, tensor=1, pipeline=1)
    # 4 * 4096 in, 2 * 4096 + 2 * 1024 out of attention; three matrices of the MLP.
    layer = 4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 4096 + 3 * 14336
    ends = 2 * (LLAMA_3_8B.shape.vocab_size + 4096)
    assert found == (32 * layer + ends) * 32


def test_split_devices_have_less_and_mixtures_more() -> None:
    whole = adapter_bytes(LLAMA_3_8B, 128, tensor=1, pipeline=1)
    assert whole / 2 < adapter_bytes(LLAMA_3_8B, 128, tensor=2, pipeline=1) < whole
    # Each stage has one end of the vocabulary.
    assert adapter_bytes(LLAMA_3_8B, 128, tensor=1, pipeline=2) == whole // 2
    mixture = with_fields(LLAMA_3_8B, num_experts=8, expert_intermediate_size=14336)
    assert adapter_bytes(mixture, 128, tensor=1, pipeline=1) > 4 * whole


LARGE_STEP = Step(tokens=8192, sequences=256, release=(0, 32), capability=90)
TAKEN = (2 * GIB, GIB)
DELTA = DeltaShape(key_heads=16, value_heads=32, key_dim=128, value_dim=128)


def _less(facts: ModelFacts, step: Step) -> int:
    return uncertainty(facts, step, 10 * GIB, TAKEN)[0]


def _with_delta() -> ModelFacts:
    return with_fields(LLAMA_3_8B, states=StateLayers(layers=24, delta=DELTA))


def test_a_trial_run_of_gated_delta_nets_may_be_counted_among_graphs() -> None:
    facts = _with_delta()
    older = replace(LARGE_STEP, release=(0, 25))
    assert _less(facts, LARGE_STEP) - _less(facts, older) == TAKEN[0]


@pytest.mark.parametrize(("capability", "more"), [(90, 0), (100, 7), (103, 7), (120, 0)])
def test_graphs_of_b200_and_its_like_may_be_estimated_far_too_high(
    capability: int, more: int
) -> None:
    there = replace(LARGE_STEP, capability=capability)
    assert _less(LLAMA_3_8B, there) - _less(LLAMA_3_8B, LARGE_STEP) == more * GIB


def test_graphs_of_drafts_may_take_as_much_again() -> None:
    drafting = replace(LLAMA_3_8B, drafted_tokens=2)
    assert _less(drafting, LARGE_STEP) - _less(LLAMA_3_8B, LARGE_STEP) == TAKEN[1]
