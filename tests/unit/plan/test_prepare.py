import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan import EnginePlan, plan_model, prepare
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.prepare import Reach

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}
GPU = Hardware(devices=("0",), device_memory=8 << 30)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def plan(
    text: str, folder: Path, environment: Mapping[str, str], reach: Reach = "local"
) -> EnginePlan:
    options = resolve_options(parse_properties(text), {}, folder=folder)
    return plan_model(options, environment, hardware=GPU, reach=reach)


def test_a_local_model_is_measured(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    made = plan("", tmp_path, {})
    assert made.config.model == str(tmp_path)
    assert made.memory
    assert made.memory.num_tokens > 128


def test_a_mask_that_names_no_gpu_is_a_note(
    tmp_path: Path, nvidia_smi: Callable[..., None]
) -> None:
    nvidia_smi([f"{i}, GPU-{i}, A, 8192, 0, 8.0, 550.1, Disabled" for i in range(2)])
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    options = resolve_options(parse_properties(""), {}, folder=tmp_path)
    made = plan_model(options, {"CUDA_VISIBLE_DEVICES": "1,4"})
    assert made.parallel.device_groups == (("1",),)
    assert any("4 is none of the 2 GPUs that CUDA has" in note for note in made.notes)


def test_what_a_config_does_not_say_is_said_and_no_fault(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["NewForCausalLM"]}')
    made = plan("", tmp_path, {})
    assert made.memory is None
    assert made.notes[-1].startswith("the size of the model is not known: ")
    assert made.notes[-1].endswith("is missing")


def test_a_hub_model_is_measured_from_the_local_cache(tmp_path: Path) -> None:
    cached = tmp_path / "hub" / "models--org--m"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(COMMIT)
    (cached / "snapshots" / COMMIT).mkdir(parents=True)
    (cached / "snapshots" / COMMIT / "config.json").write_text(json.dumps(CONFIG))
    made = plan("option.model_id=org/m", tmp_path, {"HF_HUB_CACHE": str(tmp_path / "hub")})
    assert made.config.model == "org/m"
    assert made.memory


def test_a_hub_model_that_is_not_here_can_be_planned_but_not_loaded(tmp_path: Path) -> None:
    offline = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    made = plan("option.model_id=org/m", tmp_path, offline)
    assert made.notes[-1].endswith("org/m is not downloaded yet")
    with pytest.raises(ConfigurationError, match="HF_HUB_OFFLINE is set"):
        plan("option.model_id=org/m", tmp_path, offline, "model")
    elsewhere = {**offline, "VLLM_USE_MODELSCOPE": "true"}
    assert plan("option.model_id=org/m", tmp_path, elsewhere, "model").config.model == "org/m"


def test_models_of_s3_are_fetched_when_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(url: str, environment: Mapping[str, str], *, say: Callable[[str], None]) -> Path:
        folder = tmp_path / url.rpartition("/")[2]
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG))
        (folder / "tokenizer.json").write_text('{"model": {}}')
        (folder / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
        return folder

    monkeypatch.setattr(prepare, "fetch_s3", fetch)
    text = "option.model_id=s3://b/big\noption.speculative_draft_model=s3://b/small"
    made = plan(text, tmp_path, {}, "model")
    assert made.config.model == str(tmp_path / "big")
    assert made.memory
    assert made.config.arguments["speculative_config"]["model"] == str(tmp_path / "small")


def test_a_plan_of_an_s3_model_needs_only_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"config.json": json.dumps(CONFIG).encode()}

    def copy(_: str, folder: Path, __: object, *, only: tuple[str, ...]) -> None:
        for name in files.keys() & set(only):
            (folder / name).write_bytes(files[name])

    monkeypatch.setattr(prepare, "copy_s3", copy)
    text = "option.model_id=s3://bucket/m"
    made = plan(text, tmp_path, {}, "config")
    assert made.config.model == "s3://bucket/m"
    assert made.memory
    files.clear()
    assert "has no readable config.json" in plan(text, tmp_path, {}, "config").notes[-1]
    assert "fetched when it is loaded" in plan(text, tmp_path, {}).notes[-1]


def test_a_hub_model_without_a_config_is_left_to_vllm(tmp_path: Path) -> None:
    """It may be in Mistral's own form."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho EntryNotFoundError >&2\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    text = f"option.model_id=org/m\noption.pythonExecutable={python}"
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    made = plan(text, tmp_path, environment, "model")
    assert made.config.model == "org/m"
    assert "the size of the model is not known: org/m: has no such file" in made.notes[-1]
    with pytest.raises(ConfigurationError, match="has no such file"):
        plan(f"option.rolling_batch=disable\n{text}", tmp_path, environment, "model")
