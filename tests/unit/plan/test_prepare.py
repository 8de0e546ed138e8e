"""Where a model's size is read from, that of its draft model too."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.plan import EnginePlan, plan_model, prepare
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.prepare import Reach
from tests.support.packages.installed_engine import script
from tests.support.records.plans import CONFIG, options_of
from tests.unit.sizing.test_model_facts import LLAMA_3_8B

GPU = Hardware(devices=("0",), device_memory=80 << 30)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def plan(
    text: str, folder: Path, environment: Mapping[str, str] = {}, reach: Reach = "local"
) -> EnginePlan:
    return plan_model(options_of(text, folder=folder), environment, hardware=GPU, reach=reach)


def test_a_local_model_is_measured(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    made = plan("", tmp_path)
    assert made.config.model == str(tmp_path)
    assert made.memory
    assert made.memory.num_tokens > 128


def test_a_mask_that_names_no_gpu_is_a_note(
    tmp_path: Path, nvidia_smi: Callable[..., None]
) -> None:
    nvidia_smi([f"GPU-{i}, A, 8192, 0, 8.0, 550.1, Disabled" for i in range(2)])
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    made = plan_model(options_of(folder=tmp_path), {"CUDA_VISIBLE_DEVICES": "1,4"})
    assert made.parallel.device_groups == (("1",),)
    assert any("4 is none of the 2 GPUs that CUDA has" in note for note in made.notes)


def test_what_a_config_does_not_say_is_said_and_no_fault(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["NewForCausalLM"]}')
    made = plan("", tmp_path)
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
        (folder / "tokenizer.json").write_text('{"model": {"vocab": {}}}')
        table = b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
        (folder / "model.safetensors").write_bytes(bytes([len(table)]) + bytes(7) + table)
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
    assert "fetched when it is loaded" in plan(text, tmp_path).notes[-1]


def test_a_hub_model_without_a_config_is_left_to_vllm(tmp_path: Path) -> None:
    """It may be in Mistral's own form."""
    python = script(tmp_path / "python", "echo EntryNotFoundError >&2\nexit 1")
    text = f"option.model_id=org/m\noption.pythonExecutable={python}"
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    made = plan(text, tmp_path, environment, "model")
    assert made.config.model == "org/m"
    assert "the size of the model is not known: org/m: has no such file" in made.notes[-1]
    with pytest.raises(ConfigurationError, match="has no such file"):
        plan(f"option.rolling_batch=disable\n{text}", tmp_path, environment, "model")


COUNTED = "draft model {}: counted: 2.8 GiB weights, the cache of 2 layer(s) and its steps"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for folder, layers in (("", 32), ("small", 2), ("eagle", 2)):
        config = {**LLAMA_3_8B, "num_hidden_layers": layers, "num_nextn_predict_layers": 1}
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("speculation", "message"),
    [
        ('speculative_config={"model": "SMALL", "num_speculative_tokens": 3}', COUNTED),
        ("speculative_draft_model=SMALL", COUNTED),
        ('speculative_config={"model": "EAGLE"}', "draft model {}: counted: 832.0 MiB weights, "),
        ('speculative_config={"method": "mtp"}', "1 MTP layer(s) of the model: counted: 480.0 MiB"),
        ('speculative_config={"method": "deepseek_mtp"}', "1 MTP layer(s) of the model: counted"),
        (
            'speculative_config={"model": "org/none"}',
            "draft model org/none: not counted: its weights and",
        ),
        (
            'speculative_config={"model": "SMALL", "method": "medusa"}',
            "draft model {}: not counted: the",
        ),
        ('speculative_config={"method": "ngram", "prompt_lookup_max": 3}', ""),
        ("ngram_prompt_lookup_max=3", ""),
    ],
)
def test_what_is_counted_of_a_draft_model_is_said(
    speculation: str, message: str, model: Path
) -> None:
    draft = model / ("eagle" if "EAGLE" in speculation else "small")
    text = speculation.replace("SMALL", str(draft)).replace("EAGLE", str(draft))
    reasons = [each for each in plan(f"option.{text}", model).reasons if "counted:" in each]
    assert len(reasons) == bool(message)
    assert "".join(reasons).startswith(message.format(draft))


def test_drafted_tokens_take_states_and_their_layer_blocks(tmp_path: Path) -> None:
    """Of a model whose layers with a state are three in four."""
    config = {"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokens = []
    for speculation in ("", '{"method": "mtp"}', '{"method": "mtp", "num_speculative_tokens": 5}'):
        made = plan(speculation and f"option.speculative_config={speculation}", tmp_path)
        assert not speculation or "the cache of 1 layer(s)" in " ".join(made.reasons)
        assert made.memory
        tokens.append(made.memory.num_tokens)
    assert tokens == sorted(tokens, reverse=True)
    assert len(set(tokens)) == 3


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("enable_dbo=true", "enable_dbo"),
        ("enable_dbo=false", ""),
        ("mamba_cache_mode=none", ""),
        ('limit_mm_per_prompt={"image": 2}', "limit_mm_per_prompt"),
        ("fully_sharded_loras=true", "fully_sharded_loras"),
        ("max_num_queued_reqs=9", ""),
        (
            'speculative_config={"method": "ngram", "num_speculative_tokens": 2, '
            '"prompt_lookup_max": 4, "parallel_drafting": true}',
            "speculative_config.parallel_drafting",
        ),
    ],
)
def test_each_option_is_judged_for_memory(text: str, named: str, tmp_path: Path) -> None:
    config = {"model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 151936}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    reasons = plan(f"option.{text}", tmp_path).reasons
    (lacks,) = (each for each in reasons if each.startswith("config.json lacks "))
    assert lacks.startswith("config.json lacks hidden_size, intermediate_size, num_attention_heads")
    uncounted = [each.partition("take or save: ")[2] for each in reasons if "or save: " in each]
    assert uncounted == ([named] if named else [])


def test_overridden_fields_are_those_that_are_planned_with(tmp_path: Path) -> None:
    """As vLLM does it: configs inside are changed, everything else is replaced."""
    text = {"model_type": "qwen3_5_text", "num_hidden_layers": 32, "dtype": "bfloat16"}
    config = {"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 2}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def planned(overrides: str) -> tuple[int, str]:
        """Return the bytes of the weights, and the plan's reasons."""
        made = plan(f"option.hf_overrides={overrides}", tmp_path)
        assert made.memory
        return made.memory.weights, " ".join(made.reasons)

    whole, _ = planned("{}")
    half, why = planned('{"text_config": {"num_hidden_layers": 16}}')
    assert half < 0.75 * whole
    # A field of the outer config is none of the model's.
    outside = '{"num_hidden_layers": 16, "rope_parameters": {"rope_type": "yarn"}}'
    assert planned(outside)[0] == whole
    assert "hf_overrides" not in why + planned(outside)[1]
    assert "take or save: hf_overrides" in planned("a.function")[1]
    # Of weights on disk a part is left out, too.
    index = json.dumps({"metadata": {"total_size": 40_000_000_000}, "weight_map": {}})
    (tmp_path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    sizes = [planned(f'{{"text_config": {{"num_hidden_layers": {n}}}}}')[0] for n in (32, 16)]
    assert sizes[1] < 0.75 * sizes[0]
