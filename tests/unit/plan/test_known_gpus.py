"""GPUs by name, and by their memory."""

from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.errors import ConfigurationError
from lmi_backend.plan.known_gpus import KNOWN_GPUS, gpu_of_memory, known_gpu
from lmi_backend.units import GIB


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "H100"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("rtx pro 6000", "RTX-PRO-6000"),
        ("AMD Instinct MI300X", "MI300X"),
        ("a100 80GB", "A100-80GB"),
    ],
)
def test_makers_and_spelling_do_not_matter(name: str, key: str) -> None:
    assert known_gpu(name) is KNOWN_GPUS[key]


def test_others_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"--gpu K80; accepted: V100-16GB, V100-32GB, "):
        known_gpu("K80")


def test_memory_as_a_log_has_it_tells_the_kind() -> None:
    assert gpu_of_memory(int(94.97 * GIB)) is KNOWN_GPUS["RTX-PRO-6000"]
    assert gpu_of_memory(int(191.69 * GIB)) is KNOWN_GPUS["MI300X"]
    assert gpu_of_memory(80 * GIB) is None
    assert gpu_of_memory(0) is None


def test_only_instincts_have_no_compute_capability() -> None:
    assert {name for name, each in KNOWN_GPUS.items() if each.is_instinct} == {
        "MI250", "MI300X", "MI325X", "MI355X",
    }  # fmt: skip


CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
"intermediate_size": 14336, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}"""


def planned(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    folder.joinpath("config.json").write_text(CONFIG, encoding="utf-8")
    folder.joinpath("serving.properties").write_text("option.rolling_batch=vllm\n", "utf-8")
    assert main(["plan", str(folder), "--explain-memory", *words]) == 0
    return capsys.readouterr().out


def test_a_plan_is_made_for_a_named_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = planned(tmp_path, ["--gpu", "L40S"], capsys)
    assert named == planned(tmp_path, ["--gpus", "1", "--gpu-memory", "44.39GiB"], capsys)
    instinct = planned(tmp_path, ["--gpu", "MI300X"], capsys)
    assert instinct == planned(tmp_path, ["--gpus", "1", "--gpu-memory", "191.69GiB"], capsys)
    assert instinct != planned(tmp_path, ["--gpus", "1", "--gpu-memory", "191.6GiB"], capsys)
