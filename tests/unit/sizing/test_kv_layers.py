"""Layers that see a window, and layers that have a state."""

from typing import Any

import pytest

from tests.support.records.published_logs import facts_of, known_configs

PUBLIC = known_configs()
LLAMA = PUBLIC["meta-llama/Llama-3.1-8B-Instruct"]
WINDOW = LLAMA | {"sliding_window": 4096}
NEMOTRON = PUBLIC["nvidia/NVIDIA-Nemotron-Nano-9B-v2"]


@pytest.mark.parametrize(
    ("config", "layers", "window"),
    [
        (LLAMA, 0, 0),
        (LLAMA | {"sliding_window": None}, 0, 0),
        (WINDOW, 32, 4096),  # Mistral 7B v0.1
        (WINDOW | {"use_sliding_window": False, "max_window_layers": 28}, 0, 0),  # Qwen2.5
        (WINDOW | {"use_sliding_window": True, "max_window_layers": 28}, 4, 4096),
        (WINDOW | {"layer_types": ["full_attention"] * 32}, 0, 0),
        (WINDOW | {"layer_types": ["sliding_attention", "full_attention"] * 16}, 16, 4096),
        (WINDOW | {"sliding_window_pattern": 4}, 24, 4096),
        (WINDOW | {"model_type": "gemma2"}, 16, 4096),
        (PUBLIC["google/gemma-3-27b-it"], 52, 1024),
        (LLAMA | {"model_type": "llama4_text", "attention_chunk_size": 8192}, 24, 8192),
    ],
)
def test_some_layers_see_a_window(config: dict[str, Any], layers: int, window: int) -> None:
    found = facts_of(config).cache.local
    assert (found.layers, found.window) == (layers, window)
    assert found.is_chunked == ("attention_chunk_size" in config)


def test_a_pattern_counts_for_the_weights_as_for_the_cache() -> None:
    """Nemotron Nano 9B v2 has 27 mixers, 4 attentions and 25 MLPs: 8.89 thousand million."""
    facts = facts_of(NEMOTRON)
    assert (facts.cache.layers, facts.cache.states.layers) == (4, 27)
    assert facts.cache.states.numbers == 128 * 80 * 128
    assert facts.weights.total == pytest.approx(2 * 8.89e9, rel=0.005)


@pytest.mark.parametrize(("written", "size"), [({}, 4), ({"mamba_ssm_cache_dtype": "bfloat16"}, 2)])
def test_nemotrons_states_have_32_bits_unless_told_otherwise(
    written: dict[str, str], size: int
) -> None:
    plain = {key: value for key, value in NEMOTRON.items() if not key.startswith("mamba_ssm")}
    found = facts_of(plain | written)
    assert found.cache.states.bytes_each == size
    assert found.cache.states.checkpoints


@pytest.mark.parametrize(
    ("sparse", "kept"),
    [
        ({"sparse_index_dim": 128, "sparse_attention_freq": [0] * 8 + [1] * 24}, 192),
        ({"sparse_index_dim": 128}, 256),
        ({"sparse_index_dim": 128, "use_sparse_attention": False}, 0),
        ({"sparse_index_dim": "many", "sparse_attention_freq": 3}, 0),
        ([1, 2], 0),
    ],
)
def test_keys_of_sparse_attention_are_kept_by_each_device(sparse: object, kept: int) -> None:
    """MiniMax-M3's, by the mean of its layers: one of 128 numbers of 16 bits where a layer has it.

    A published start on two devices has them to the token (measured_2026.csv).
    """
    assert facts_of(LLAMA | {"sparse_attention_config": sparse}).cache.index_bytes == kept
