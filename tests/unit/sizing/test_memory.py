from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.sizing.memory import (
    GPU_OVERHEAD,
    MemoryEstimate,
    estimate_memory,
    kv_blocks,
    kv_bytes_per_token,
    valid_tensor_degrees,
)
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.units import GIB

LLAMA_3_8B = ModelFacts(
    architecture="LlamaForCausalLM",
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    intermediate_size=14336,
    max_position_embeddings=8192,
    dtype="bfloat16",
    weight_bytes=16_060_522_496,
    weight_source="safetensors index",
    kv_values_per_token_and_layer=2048,
    num_kv_layers=32,
    is_mla=False,
    is_encoder_decoder=False,
    num_experts=0,
    quantization="",
)
TINY_LLAMA = replace(
    LLAMA_3_8B,
    num_layers=3,
    num_kv_layers=3,
    hidden_size=128,
    num_heads=4,
    num_kv_heads=4,
    head_dim=32,
    kv_values_per_token_and_layer=256,
    vocab_size=512,
    intermediate_size=256,
    dtype="float32",
    weight_bytes=2_494_976,
)
TINY_GROUPED = replace(
    TINY_LLAMA, num_layers=5, num_kv_layers=5, num_kv_heads=2, kv_values_per_token_and_layer=128
)
DEEPSEEK_V3 = replace(
    LLAMA_3_8B,
    num_layers=61,
    num_kv_layers=61,
    hidden_size=7168,
    num_heads=128,
    num_kv_heads=128,
    head_dim=192,
    kv_values_per_token_and_layer=576,
    is_mla=True,
    vocab_size=129280,
    weight_bytes=688_586_727_753,
    num_experts=256,
    experts_per_token=8,
    expert_intermediate_size=2048,
    intermediate_size=18432,
)
BF16 = {"kv_dtype_bytes": 2, "block_size": 16}


def estimate(facts: ModelFacts = LLAMA_3_8B, **changes: Any) -> MemoryEstimate:
    usual: dict[str, Any] = {
        "tensor": 1,
        "pipeline": 1,
        "budget": 72 * GIB,
        "kv_dtype_bytes": 2,
        "max_batched_tokens": 8192,
        "max_sequences": 256,
    }
    return estimate_memory(facts, **(usual | changes))


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
    blocks = kv_blocks(
        kv_bytes,
        facts,
        tensor=1,
        pipeline=1,
        kv_dtype_bytes=kv_dtype_bytes,
        block_size=block_size,
    )
    assert blocks * block_size == tokens


@pytest.mark.parametrize(
    ("facts", "tensor", "values"),
    [
        (LLAMA_3_8B, 1, 2048),
        (LLAMA_3_8B, 4, 512),
        (LLAMA_3_8B, 8, 256),
        (LLAMA_3_8B, 32, 256),  # a copy of one head on each of four devices
        (DEEPSEEK_V3, 1, 576),
        (DEEPSEEK_V3, 8, 576),  # the latent vector is everywhere
    ],
)
def test_a_device_caches_its_heads(facts: ModelFacts, tensor: int, values: int) -> None:
    per_token = kv_bytes_per_token(facts, tensor=tensor, kv_dtype_bytes=2)
    assert per_token == values * facts.num_kv_layers * 2
    blocks = kv_blocks(GIB, facts, tensor=tensor, pipeline=1, **BF16)
    assert blocks == GIB // (16 * per_token)


@pytest.mark.parametrize(("pipeline", "layers"), [(1, 32), (2, 16), (3, 11), (5, 7), (32, 1)])
def test_the_fullest_stage_decides(pipeline: int, layers: int) -> None:
    blocks = kv_blocks(GIB, LLAMA_3_8B, tensor=1, pipeline=pipeline, **BF16)
    assert blocks == GIB // (16 * 2048 * layers * 2)


def test_half_the_bytes_cache_twice_the_tokens() -> None:
    blocks = [
        kv_blocks(GIB, LLAMA_3_8B, tensor=1, pipeline=1, kv_dtype_bytes=size, block_size=16)
        for size in (1, 2, 4)
    ]
    assert blocks == [1024, 512, 256]


def test_layers_without_a_cache_take_none() -> None:
    hybrid = replace(LLAMA_3_8B, num_kv_layers=8)
    assert estimate(hybrid).block_bytes * 4 == estimate().block_bytes
    assert estimate(hybrid, pipeline=2).block_bytes * 8 == estimate().block_bytes


def test_a_model_without_a_cache_has_no_blocks() -> None:
    mamba = replace(LLAMA_3_8B, num_kv_layers=0)
    assert kv_blocks(GIB, mamba, tensor=1, pipeline=1, **BF16) == 0
    assert (estimate(mamba).block_bytes, estimate(mamba).num_tokens) == (0, 0)
    assert estimate(mamba).kv_cache > 0


def test_the_parts_make_up_the_budget() -> None:
    found = estimate()
    parts = found.weights + found.activations + found.overhead + found.kv_cache
    assert parts == 72 * GIB
    assert found.overhead == GPU_OVERHEAD
    assert found.num_blocks == found.kv_cache // found.block_bytes
    assert found.num_tokens == found.num_blocks * 16
    assert found.block_bytes == 16 * 131_072


def test_a_known_model_on_a_known_device() -> None:
    """Llama-3-8B with vLLM's defaults on 80 GB of which it may use 90 %."""
    found = estimate(budget=round(79.1 * 0.9 * GIB))
    assert found.weights == LLAMA_3_8B.weight_bytes
    assert 0.5 * GIB < found.activations < 2 * GIB
    assert 420_000 < found.num_tokens < 460_000


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_tensor_parallel_splits_all_weights(tensor: int) -> None:
    found = estimate(tensor=tensor)
    assert found.weights == pytest.approx(LLAMA_3_8B.weight_bytes / tensor, abs=1)
    assert found.activations < estimate().activations


def test_embeddings_and_head_are_on_the_outer_stages() -> None:
    matrix = 128256 * 4096 * 2
    layer = (LLAMA_3_8B.weight_bytes - 2 * matrix) // 32
    assert estimate(pipeline=2).weights == pytest.approx(16 * layer + matrix, abs=32)
    assert estimate(pipeline=4).weights == pytest.approx(8 * layer + matrix, abs=32)
    # 8, 8, 8, 8 of 33 layers and one more before the last: more cache and no matrix there.
    longer = replace(LLAMA_3_8B, num_layers=33, num_kv_layers=33)
    assert estimate(longer, pipeline=4).block_bytes == 16 * 2048 * 9 * 2


def test_a_tied_matrix_is_there_once_unless_stages_part() -> None:
    matrix = 128256 * 4096 * 2
    tied = replace(LLAMA_3_8B, ties_embeddings=True, weight_bytes=LLAMA_3_8B.weight_bytes - matrix)
    assert estimate(tied).weights == tied.weight_bytes
    assert estimate(tied, pipeline=2).weights == estimate(pipeline=2).weights


def test_weights_may_take_less_than_on_disk() -> None:
    assert estimate(weight_scale=0.5).weights == LLAMA_3_8B.weight_bytes // 2


def test_on_a_cpu_there_is_no_overhead() -> None:
    assert estimate(overhead=0).kv_cache == estimate().kv_cache + GPU_OVERHEAD


def test_a_model_that_does_not_fit_caches_nothing() -> None:
    found = estimate(budget=8 * GIB)
    assert found.kv_cache < 0
    assert (found.num_blocks, found.num_tokens) == (0, 0)


@pytest.mark.parametrize("name", ["max_batched_tokens", "max_sequences"])
def test_larger_steps_need_more_memory(name: str) -> None:
    assert estimate(**{name: 16384}).activations > estimate().activations


def test_experts_widen_the_activations() -> None:
    mixtral = replace(
        LLAMA_3_8B, num_experts=8, experts_per_token=2, expert_intermediate_size=14336
    )
    assert estimate(mixtral).activations > estimate().activations


def test_weights_smaller_than_their_embeddings_are_still_counted_once() -> None:
    odd = replace(LLAMA_3_8B, weight_bytes=1_000_000)
    assert estimate(odd).weights == 1_000_000


@pytest.mark.parametrize(
    ("heads", "kv_heads", "limit", "degrees"),
    [
        (32, 8, 8, [1, 2, 4, 8]),
        (32, 8, 40, [1, 2, 4, 8, 16, 32]),
        (28, 4, 8, [1, 2, 4]),
        (71, 1, 100, [1, 71]),
        (40, 10, 8, [1, 2, 5]),
        (12, 12, 7, [1, 2, 3, 4, 6]),
        (32, 8, 0, []),
    ],
)
def test_heads_decide_on_tensor_parallel_degrees(
    heads: int, kv_heads: int, limit: int, degrees: list[int]
) -> None:
    facts = replace(LLAMA_3_8B, num_heads=heads, num_kv_heads=kv_heads)
    assert valid_tensor_degrees(facts, limit) == degrees


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tensor": 0}, "tensor_parallel_degree=0 is not positive"),
        ({"pipeline": -1}, "pipeline_parallel_degree=-1 is not positive"),
        ({"pipeline": 33}, r"pipeline_parallel_degree=33: .* layers \(32\)"),
        ({"block_size": 0}, "block_size=0 is not positive"),
        ({"kv_dtype_bytes": 0}, "kv_dtype_bytes=0 is not positive"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        estimate(**changes)
    usual = {"tensor": 1, "pipeline": 1, "kv_dtype_bytes": 2, "block_size": 16}
    with pytest.raises(ConfigurationError, match=said):
        kv_blocks(GIB, LLAMA_3_8B, **(usual | changes))
