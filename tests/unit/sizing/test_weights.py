import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.sizing.model_facts import read_model_facts
from tests.support.records.published_logs import facts_of
from tests.unit.sizing.test_model_facts import LLAMA_3_8B, decoder

COMPUTED = 16_060_522_496
GPT_OSS_20B = decoder(
    "GptOssForCausalLM", "gpt_oss", 24, 2880, 64, 8, 2880, 201088, head_dim=64,
    num_local_experts=32, num_experts_per_tok=4, tie_word_embeddings=False,
    quantization_config={"quant_method": "mxfp4"},
)  # fmt: skip


def write(folder: Path, *names: str, size: int = 1000) -> None:
    for name in names:
        (folder / name).write_bytes(bytes(size))


def write_index(folder: Path, name: str, total: object) -> None:
    (folder / f"{name}.index.json").write_text(json.dumps({"metadata": {"total_size": total}}))


def weights(folder: Path) -> tuple[int, str]:
    (folder / "config.json").write_text(json.dumps(LLAMA_3_8B))
    facts = read_model_facts(folder)
    assert facts
    return facts.weights.total, facts.weights.source


def test_without_files_weights_are_computed(tmp_path: Path) -> None:
    assert weights(tmp_path) == (COMPUTED, "computed from config.json")


def test_the_index_knows_before_the_files(tmp_path: Path) -> None:
    write(tmp_path, "model-00001-of-00002.safetensors", "pytorch_model.bin")
    write_index(tmp_path, "pytorch_model.bin", 7000)
    write_index(tmp_path, "model.safetensors", 5000)
    assert weights(tmp_path) == (5000, "safetensors index")


def test_pytorch_weights_count_where_there_are_no_others(tmp_path: Path) -> None:
    write(tmp_path, "pytorch_model.bin", "training_args.bin", "optimizer.bin")
    assert weights(tmp_path) == (1000, "file sizes")
    write_index(tmp_path, "pytorch_model.bin", 7000)
    assert weights(tmp_path) == (7000, "pytorch_model.bin index")
    write(tmp_path, "model.safetensors", size=300)
    assert weights(tmp_path) == (300, "file sizes")


@pytest.mark.parametrize("total", ["null", '"5000"', "-1", "0", "true", "{", "[" * 100_000])
def test_an_index_without_a_sum_gives_way_to_the_files(total: str, tmp_path: Path) -> None:
    write(tmp_path, "model-1.safetensors", "model-2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    for text in (f'{{"metadata": {{"total_size": {total}}}}}', total, "[]", "{}"):
        index.write_text(text)
        assert weights(tmp_path) == (2000, "file sizes")


def test_no_weight_counts_twice_and_no_adapter_once(tmp_path: Path) -> None:
    write(tmp_path, "consolidated.safetensors", "adapter_model.safetensors")
    assert weights(tmp_path) == (1000, "file sizes")
    write(tmp_path, "model.safetensors", size=400)
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    assert weights(tmp_path) == (400, "file sizes")


@pytest.mark.parametrize(
    ("quantization", "published"),
    [
        # Sizes of what is published for Llama-3-8B in each of these formats.
        pytest.param({"quant_method": "awq", "bits": 4, "group_size": 128}, 5.73e9, id="awq"),
        pytest.param({"quant_method": "gptq", "bits": 4, "group_size": 128}, 5.74e9, id="gptq"),
        pytest.param({"quant_method": "fp8"}, 9.09e9, id="fp8"),
        pytest.param(
            {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 5.70e9, id="bnb-4bit"
        ),
        pytest.param({"load_in_8bit": True}, 9.09e9, id="bnb-8bit"),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}},
            },
            5.73e9,
            id="compressed-tensors-4",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            9.09e9,
            id="compressed-tensors-8",
        ),
        pytest.param({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 6.03e9, id="nvfp4"),
        # Nobody can say how many bits: better too many.
        pytest.param({"quant_method": "unheard-of"}, COMPUTED, id="unknown"),
    ],
)
def test_quantised_weights_take_their_bits_and_scales(
    quantization: dict[str, Any], published: float
) -> None:
    facts = facts_of(LLAMA_3_8B | {"quantization_config": quantization})
    assert facts.weights.total == pytest.approx(published, rel=0.01)


def test_mxfp4_quantises_the_experts_only() -> None:
    """Where the file names its method alone, and none of the other modules."""
    assert facts_of(GPT_OSS_20B).weights.total == pytest.approx(13.76e9, rel=0.01)


@pytest.mark.parametrize("quantization", [{"quant_method": 4}, "awq", {"ignore": "all"}, 7])
def test_odd_quantisation_is_no_reason_to_refuse(quantization: object) -> None:
    assert facts_of(LLAMA_3_8B | {"quantization_config": quantization}).weights.total


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("auto", "bfloat16"), ("bf17", "bfloat16"), (16, "bfloat16"), (None, "float32")],
)
def test_an_odd_dtype_is_no_reason_to_refuse(dtype: object, expected: str) -> None:
    assert facts_of(LLAMA_3_8B | {"torch_dtype": dtype}).shape.dtype == expected


@pytest.mark.parametrize(
    ("vision", "parameters"),
    [
        ({"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27}, 416e6),
        ({"embed_dim": 1280, "hidden_size": 3584, "depth": 32, "mlp_ratio": 4}, 634e6),
        ({"hidden_size": 1280, "intermediate_size": 3420, "depth": 32, "hidden_act": "silu"},
         635e6),
        ({}, 0),
    ],
)  # fmt: skip
def test_a_vision_encoder_is_counted(vision: dict[str, Any], parameters: float) -> None:
    """SigLIP in Gemma 3, and those of Qwen2-VL and Qwen2.5-VL."""
    config = LLAMA_3_8B | {"vision_config": vision}
    facts = facts_of(config)
    assert facts.shape.vision_parameters == pytest.approx(parameters, rel=0.02)
    assert facts.weights.total == COMPUTED + 2 * facts.shape.vision_parameters
