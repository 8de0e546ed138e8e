from typing import Any

import pytest

from tests.support.records import facts as known
from tests.support.records.published_logs import facts_of


def decoder(architecture: str, model_type: str, *sizes: int, **more: Any) -> dict[str, Any]:
    """Return a config; sizes: layers, hidden, heads, KV heads, intermediate, vocabulary."""
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    names = (*names, "intermediate_size", "vocab_size")
    dtype = {"torch_dtype": "bfloat16"}
    named = dict(zip(names, sizes, strict=True))
    return {"architectures": [architecture], "model_type": model_type, **named, **dtype, **more}


LLAMA = "LlamaForCausalLM"
LLAMA_3_8B = decoder(LLAMA, "llama", 32, 4096, 32, 8, 14336, 128256, max_position_embeddings=8192)
LLAMA_2_7B = decoder(LLAMA, "llama", 32, 4096, 32, 32, 11008, 32000)
QWEN_2_5_05B = decoder(
    "Qwen2ForCausalLM", "qwen2", 24, 896, 14, 2, 4864, 151936, tie_word_embeddings=True
)
GEMMA_2_9B = decoder("Gemma2ForCausalLM", "gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256)
GPT_2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12, "n_head": 12,
    "n_embd": 768, "n_positions": 1024, "n_ctx": 1024, "n_inner": None, "vocab_size": 50257,
}  # fmt: skip
FALCON_7B = {
    "architectures": ["FalconForCausalLM"], "model_type": "falcon", "num_hidden_layers": 32,
    "hidden_size": 4544, "num_attention_heads": 71, "num_kv_heads": 71, "multi_query": True,
    "new_decoder_architecture": False, "vocab_size": 65024, "torch_dtype": "bfloat16",
}  # fmt: skip
FALCON_40B = {
    "architectures": ["FalconForCausalLM"], "model_type": "falcon", "num_hidden_layers": 60,
    "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8, "multi_query": True,
    "new_decoder_architecture": True, "vocab_size": 65024, "torch_dtype": "bfloat16",
}  # fmt: skip
MPT_7B = {
    "architectures": ["MPTForCausalLM"], "model_type": "mpt", "n_layers": 32, "n_heads": 32,
    "d_model": 4096, "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432,
    "attn_config": {"kv_n_heads": 8}, "torch_dtype": "bfloat16",
}  # fmt: skip
FLAN_T5_XL = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "num_layers": 24,
    "num_decoder_layers": 24, "d_model": 2048, "d_kv": 64, "num_heads": 32, "d_ff": 5120,
    "feed_forward_proj": "gated-gelu", "is_encoder_decoder": True, "n_positions": 512,
    "tie_word_embeddings": False, "vocab_size": 32128,
}  # fmt: skip
CHATGLM_3 = {
    "architectures": ["ChatGLMModel"], "model_type": "chatglm", "num_layers": 28,
    "hidden_size": 4096, "num_attention_heads": 32, "multi_query_attention": True,
    "multi_query_group_num": 2, "kv_channels": 128, "ffn_hidden_size": 13696,
    "padded_vocab_size": 65024, "seq_length": 8192, "torch_dtype": "float16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "parameters", "percent"),
    [
        pytest.param(LLAMA_2_7B, 6.74e9, 3, id="llama-2-7b"),
        pytest.param(QWEN_2_5_05B, 0.494e9, 3, id="qwen2.5-0.5b"),
        pytest.param(FALCON_7B, 7.22e9, 3, id="falcon-7b"),
        pytest.param(FALCON_40B, 41.8e9, 3, id="falcon-40b"),
        pytest.param(CHATGLM_3, 6.24e9, 3, id="chatglm3-6b"),
        pytest.param(FLAN_T5_XL, 2.85e9, 8, id="flan-t5-xl"),
    ],
)
def test_parameters_are_counted_as_published(
    config: dict[str, Any], parameters: float, percent: float
) -> None:
    plain = {name: each for name, each in config.items() if name != "quantization_config"}
    facts = facts_of(plain | {"torch_dtype": "float16"})
    assert facts.weights.total / 2 == pytest.approx(parameters, rel=percent / 100)


def test_every_fact_of_a_dense_model() -> None:
    assert facts_of(LLAMA_3_8B) == known.with_fields(
        # Of which the total is exactly what the index of the published weights says.
        known.LLAMA_3_8B,
        source="computed from config.json",
        served_architectures=("LlamaForCausalLM",),
        rotated=128,
        whole=65 * 4096 * 2,
        keys=32 * 2 * 4096 * 1024 * 2,
    )


@pytest.mark.parametrize(
    ("config", "name", "value"),
    [
        (GPT_2, "intermediate_size", 3072),
        (GPT_2, "max_position_embeddings", 1024),
        (GPT_2, "dtype", "float32"),
        (GPT_2, "ties_embeddings", True),
        (FALCON_7B, "num_kv_heads", 1),
        (FALCON_40B, "num_kv_heads", 8),
        (MPT_7B, "max_position_embeddings", 2048),
        (CHATGLM_3, "max_position_embeddings", 8192),
        (FLAN_T5_XL, "max_position_embeddings", 0),
        (LLAMA_2_7B, "max_position_embeddings", 2048),
        (LLAMA_2_7B | {"model_type": "novel"}, "max_position_embeddings", 0),
        (FLAN_T5_XL, "is_encoder_decoder", True),
        (FLAN_T5_XL, "num_layers", 48),
        (GEMMA_2_9B, "ties_embeddings", True),
        (LLAMA_3_8B | {"dtype": "torch.float16"}, "dtype", "float16"),
        (LLAMA_3_8B | {"head_dim": None}, "head_dim", 128),
        (LLAMA_3_8B | {"num_experts": 1}, "num_experts", 0),
        (LLAMA_3_8B | {"architectures": None}, "architecture", ""),
        (LLAMA_3_8B | {"intermediate_size": [64, 256, 128]}, "intermediate_size", 256),
        (LLAMA_3_8B | {"quantization_config": {"load_in_4bit": True}}, "quantization",
         "bitsandbytes"),
    ],
)  # fmt: skip
def test_families_name_things_differently(config: dict[str, Any], name: str, value: object) -> None:
    assert getattr(facts_of(config).shape, name) == value


@pytest.mark.parametrize(
    ("hint", "layers"),
    [
        ({}, 32),
        ({"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8}, 8),
        ({"layer_types": ["sliding_attention"] * 24 + ["full_attention"] * 8}, 32),
        ({"layer_types": ["conv"] * 22 + ["full_attention"] * 10}, 10),
        ({"layers_block_type": ["mamba"] * 28 + ["attention"] * 4}, 4),
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, 4),
        ({"full_attention_interval": 4}, 8),
        ({"attn_layer_indices": [9, 18, 27]}, 3),
        ({"attn_type_list": [0, 0, 0, 1] * 8}, 8),
        ({"hybrid_override_pattern": "M-M*" * 8}, 8),
        ({"block_configs": [{"attention": {"no_op": True}}] * 2 + [{"attention": {}}] * 30}, 30),
        ({"num_kv_shared_layers": 12}, 20),
    ],
)
def test_only_layers_with_attention_have_a_cache(hint: dict[str, Any], layers: int) -> None:
    assert facts_of(LLAMA_3_8B | hint).cache.layers == layers
