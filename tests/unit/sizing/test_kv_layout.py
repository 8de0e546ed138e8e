"""The layout of the cache, by published logs of vLLM."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.printable import GIB
from lmi_backend.sizing.config_fields import ConfigFields
from lmi_backend.sizing.kv_layers import (
    CompressedLayers,
    LocalAttention,
    StateLayers,
    read_compressed_layers,
)
from lmi_backend.sizing.kv_layout import (
    CacheSizes,
    KvLayout,
    compressed_layout,
    kv_layout,
)
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.step import Release, Step
from tests.support.records.facts import with_fields
from tests.unit.sizing.test_memory import LLAMA_3_8B

STEP = Step(tokens=8192, sequences=256, release=(0, 19))
GEMMA_3_27B = with_fields(LLAMA_3_8B, num_layers=62, layers=62, local=LocalAttention(52, 1024))
MISTRAL_7B = with_fields(LLAMA_3_8B, local=LocalAttention(32, 4096))
QWEN_35B_A3B = with_fields(
    LLAMA_3_8B,
    num_layers=40,
    layers=10,
    states=StateLayers(30, 32 * 128 * 128, 4, 3 * 8192),
)


def layout(
    facts: ModelFacts, step: Step, token: float, state: int = 0, full_token: float = 0
) -> KvLayout:
    sizes = CacheSizes(token=token, full_token=full_token or token, state=state)
    return kv_layout(facts, step, layers=facts.shape.num_layers, sizes=sizes, block_size=16)


def test_one_kind_of_layers_is_one_group() -> None:
    found = layout(LLAMA_3_8B, STEP, 4096)
    assert (found.groups, found.block_bytes) == (1, 16 * 131_072)
    assert found.blocks_for(8192) == 512
    assert found.longest(512) == 8192


GEMMA_4_31B = with_fields(LLAMA_3_8B, num_layers=60, layers=60, local=LocalAttention(50, 1024))


def test_layers_with_smaller_tokens_have_larger_blocks() -> None:
    """Gemma 4 31B: of 50 GiB vLLM 0.21 wrote "about 525,000" tokens."""
    step = replace(STEP, tokens=2048, release=(0, 20))
    found = layout(GEMMA_4_31B, step, 16_384, full_token=8192)
    assert (found.block_size, found.full_block) == (16, 32)
    blocks = 50 * GIB // found.block_bytes
    assert found.tokens(blocks, 131_072) == pytest.approx(525_000, rel=0.02)


def test_steps_that_overlap_keep_more() -> None:
    newer = layout(MISTRAL_7B, replace(STEP, release=(0, 26)), 4096)
    assert newer.blocks_for(1_000_000) == 769 + 512


@pytest.mark.parametrize(("release", "blocks"), [((0, 27), 3), ((0, 28), 6)])
def test_prefixes_of_hybrids_are_kept_from_028_on(release: Release, blocks: int) -> None:
    found = layout(QWEN_35B_A3B, replace(STEP, release=release), 1024, 2_146_304)
    assert found.state_blocks == blocks


@pytest.mark.parametrize("facts", [GEMMA_3_27B, GEMMA_4_31B, MISTRAL_7B, QWEN_35B_A3B, LLAMA_3_8B])
@pytest.mark.parametrize("blocks", [0, 3, 20, 600, 3000, 5000, 20_000])
def test_the_longest_sequence_fits_and_no_longer_one(facts: ModelFacts, blocks: int) -> None:
    full = 2048 if facts is GEMMA_4_31B else 4096
    found = layout(facts, STEP, 4096, 2_146_304 if facts is QWEN_35B_A3B else 0, full)
    longest = found.longest(blocks)
    assert not longest or found.blocks_for(longest) <= blocks
    assert found.blocks_for(longest + 1) > blocks or longest == (1 << 40) - 1


@pytest.mark.parametrize(
    ("release", "caches", "checkpoints", "kept"),
    [
        ((0, 31), True, True, 2),
        ((0, 32), True, True, 3),
        ((0, 32), True, False, 2),
        ((0, 32), False, True, 1),
    ],
)
def test_mamba_2_keeps_the_state_of_a_blocks_edge_from_inside_a_step(
    release: Release, caches: bool, checkpoints: bool, kept: int
) -> None:
    facts = with_fields(
        QWEN_35B_A3B, states=replace(QWEN_35B_A3B.cache.states, checkpoints=checkpoints)
    )
    step = replace(STEP, release=release, prefix_caching=caches)
    assert layout(facts, step, 4096, 1 << 20).state_blocks == 3 * kept


def test_without_attention_a_block_is_the_state_of_a_sequence() -> None:
    """Mamba's class defaults: 40 GiB are 22995 blocks for vLLM 0.32, of one sequence each."""
    facts = with_fields(LLAMA_3_8B, layers=0, states=StateLayers(32, 1536 * 16, 2, 3 * 1536))
    found = layout(facts, replace(STEP, release=(0, 32)), 0, 58_368)
    assert 40 * GIB // found.block_bytes == 22_995
    assert found.tokens(22_995, 2048) == 47_093_760


V4 = with_fields(LLAMA_3_8B, num_layers=43, layers=43, local=LocalAttention(43, 128))
WINDOW = 65 * 576
"""Bytes of 64 vectors of 584 bytes, in whole units of 576."""


def compressed(many: int) -> KvLayout:
    step = Step(tokens=8192, sequences=256, release=(0, 25))
    return compressed_layout(V4, CompressedLayers(few=0, many=many, index_bytes=132), step, 43)


def test_layers_that_compress_nothing_have_their_windows_only() -> None:
    found = compressed(0)
    assert (found.block_bytes, found.full_groups, found.local_groups) == (WINDOW, 0, 43)
    assert (found.further, found.groups) == ((), 44)
    found = compressed(20)
    assert (found.block_bytes, found.full_groups) == (WINDOW, 1)
    assert found.further == ((127 + 8192, 8),)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, CompressedLayers(2, 1, 132)),
        ({"index_head_dim": 129}, CompressedLayers(2, 1, 137)),
        (
            {"model_type": "", "architectures": ["DeepseekV4ForCausalLM"]},
            CompressedLayers(2, 1, 132),
        ),
        ({"model_type": "deepseek_v3"}, None),
        ({"compress_ratios": None}, None),
    ],
)
def test_they_are_read_of_the_config(
    config: dict[str, Any], layers: CompressedLayers | None
) -> None:
    """Of the model's own layers: those that draft come after them."""
    fields = {"model_type": "deepseek_v4", "compress_ratios": [0, 4, 128, 4, 4], **config}
    assert read_compressed_layers(ConfigFields(Path("config.json"), fields, fields), 4) == layers
