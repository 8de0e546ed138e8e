"""Published config.json files, and what logs say of their models."""

import itertools
import json
import random
import statistics
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.printable import GIB
from lmi_backend.sizing.config_fields import MissingFieldError
from lmi_backend.sizing.kv_layout import cache_sizes
from lmi_backend.sizing.memory import CacheKind, cache_layout, estimate_memory
from lmi_backend.sizing.model_facts import read_model_facts
from lmi_backend.sizing.step import Step
from tests.support.records.published_logs import DATA, compared, facts_of, known_configs, logs

CONFIGS = known_configs()


@pytest.mark.parametrize(
    ("model", "logged", "share"),
    [
        ("openai/gpt-oss-20b", 13.1, 0.04),
        ("openai/gpt-oss-120b", 62.0, 0.04),
        ("Qwen/Qwen3-30B-A3B-FP8", 29.1, 0.01),
        ("nvidia/Gemma-4-31B-IT-NVFP4", 31.2, 0.04),
        # Its head is of 4 bits, too.
        ("nvidia/Qwen3.6-27B-NVFP4", 19.78, 0.015),
        ("Qwen/Qwen3.5-35B-A3B", 65.3, 0.03),
    ],
)
def test_weights_of_published_files_are_what_logs_say(
    model: str, logged: float, share: float
) -> None:
    assert facts_of(CONFIGS[model]).weights.total / GIB == pytest.approx(logged, rel=share)


def test_encoders_beside_the_model_that_thinks_are_counted() -> None:
    """As those of Qwen3-ASR, whose encoder is Whisper's large one."""
    audio = {
        "model_type": "qwen3_asr_audio_encoder", "d_model": 1280, "encoder_layers": 32,
        "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
    }  # fmt: skip
    thinker = {"audio_config": audio, "text_config": CONFIGS["Qwen/Qwen3-8B"]}
    found = facts_of({"model_type": "qwen3_asr", "thinker_config": thinker})
    assert found.shape.vision_parameters == pytest.approx(0.64e9, rel=0.02)


@pytest.mark.parametrize(("further", "loaded"), [({"talker_config": {}}, 16.4), ({}, 40)])
def test_what_speaks_is_not_loaded(
    further: dict[str, object], loaded: float, tmp_path: Path
) -> None:
    """The index of a model that answers aloud has the weights of the part that speaks too."""
    config = {
        "model_type": "qwen3_omni",
        "thinker_config": {"text_config": CONFIGS["Qwen/Qwen3-8B"]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config | further), encoding="utf-8")
    index = json.dumps({"metadata": {"total_size": 40_000_000_000}})
    (tmp_path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    found = read_model_facts(tmp_path)
    assert found is not None
    assert found.weights.total / 1e9 == pytest.approx(loaded, rel=0.01)


def test_an_indexer_has_a_cache_of_its_own() -> None:
    assert facts_of(CONFIGS["zai-org/GLM-5"]).cache.index_bytes == 132
    assert facts_of(CONFIGS["deepseek-ai/DeepSeek-R1"]).cache.index_bytes == 0
    shared = CONFIGS["zai-org/GLM-5"] | {"indexer_types": ["full", "shared", "shared", "shared"]}
    assert facts_of(shared).cache.index_bytes == 132 / 4
    # Its class has ten in 34 layers.
    assert facts_of({"model_type": "hy_v4"}).cache.index_bytes == round(132 * 10 / 34)
    fewer = facts_of(shared).weights.total
    assert fewer < facts_of(CONFIGS["zai-org/GLM-5"]).weights.total


def test_most_of_a_large_mixture_is_in_its_experts() -> None:
    """So that eight copies that share them take some 95 GiB each, and not 627."""
    found = facts_of(CONFIGS["deepseek-ai/DeepSeek-R1"])
    each = found.weights.total * (1 - found.weights.expert_share * 7 / 8) / GIB
    assert each == pytest.approx(95, rel=0.03)


COUNTED = json.loads((DATA / "counted.json").read_text(encoding="utf-8"))
MISCOUNTED = {
    "cosmos3_edge", "ernie4_5_vl_moe", "falcon", "gemma4", "gemma4_unified", "glm_ocr",
    "granitemoehybrid", "inkling_mm_model", "kimi_linear", "longcat_flash", "qwen3_5",
    "qwen3_vl_moe", "step3p7",
}  # fmt: skip
"""Their models leave out what their files have, or derive one default from another."""


def test_a_file_of_nothing_but_its_type_is_counted_as_its_class() -> None:
    """Parameters are those of the model that Transformers makes of the class's defaults."""
    off = set()
    for name, parameters in COUNTED.items():
        # A class that has no sizes is of an unknown size; without a type numbers have 32 bits.
        with suppress(MissingFieldError):
            found = facts_of({"model_type": name}).weights.total / 4
            off |= {name} if abs(found / parameters - 1) > 0.015 else set()
    assert off == MISCOUNTED
    assert len(COUNTED) > 100


SPECS = json.loads((DATA / "kv_specs.json").read_text(encoding="utf-8"))
CACHED_OTHERWISE = {
    # Its files name each layer; its class has states alone.
    "granitemoehybrid",
}  # fmt: skip
"""Classes whose models vLLM makes otherwise than their defaults say."""


def test_each_layer_caches_what_that_of_vllms_own_model_does() -> None:
    """Layers and bytes as vLLM's models say them, of 16 bits a number and one device."""
    off = set()
    for name, found in SPECS.items():
        with suppress(MissingFieldError):
            facts = facts_of({"model_type": name, "dtype": "bfloat16"})
            sizes, local, states = cache_sizes(facts, 1, 2), facts.cache.local, facts.cache.states
            made: dict[str, list[float]] = {
                "full": [facts.cache.layers - local.layers, sizes.full_token, 0],
                "local": [local.layers, sizes.token, local.window],
                "state": [states.layers, sizes.state, 0],
            }
            kinds = {kind: each for kind, each in made.items() if each[0]}
            off |= (
                {name} if kinds != {kind: found[kind] for kind in made if kind in found} else set()
            )
    assert off == CACHED_OTHERWISE
    assert len(SPECS) > 50


@pytest.mark.parametrize(
    ("length", "tokens"), [(8192, 104_355), (65_536, 104_464), (98_304, 104_469)]
)
def test_compressed_text_has_the_blocks_of_vllms_own_model(length: int, tokens: int) -> None:
    """As vLLM 0.32 lays out 40 GiB where so many tokens are computed at once."""
    facts = facts_of(CONFIGS["deepseek-ai/DeepSeek-V4-Flash"])
    step, cache = Step(tokens=length // 2, sequences=256), CacheKind(dtype_bytes=2, length=length)
    layout = cache_layout(facts, degrees=(1, 1), cache=cache, step=step)
    blocks = 40 * GIB // layout.block_bytes
    assert (blocks, layout.block_bytes, layout.groups) == (42_853, 1_002_240, 5)
    assert layout.tokens(blocks, length) == pytest.approx(tokens, abs=1)


@pytest.mark.parametrize(("release", "tokens"), [((0, 26), 5664), ((0, 28), 5760), ((0, 32), 5760)])
def test_a_block_of_latent_vectors_is_aligned_for_its_kernels(
    release: tuple[int, int], tokens: int
) -> None:
    """As vLLM 0.32 aligns it for its own model, and 0.26 does not."""
    step = Step(tokens=2048, sequences=256, release=release)
    cache = CacheKind(dtype_bytes=2, length=8192)
    facts = facts_of(CONFIGS["moonshotai/Kimi-K3"])
    layout = cache_layout(facts, degrees=(1, 1), cache=cache, step=step)
    assert layout.block_size == tokens


def test_what_compresses_text_is_whole_on_each_device() -> None:
    """A MI355X has 35.15 GiB of DeepSeek-V4-Flash in 8 bits on each of eight, by a log."""
    models = json.loads((DATA / "unseen.json").read_text(encoding="utf-8"))
    facts = facts_of(models["sgl-project/DeepSeek-V4-Flash-FP8"]["config"])
    assert facts.unread == ()
    found = estimate_memory(
        facts,
        degrees=(8, 1),
        budget=230 * GIB,
        cache=CacheKind(dtype_bytes=1, length=65_536),
        step=Step(tokens=8192, sequences=256),
    )
    assert found.weights / GIB == pytest.approx(35.15, rel=0.01)


def test_what_nobody_reads_is_named() -> None:
    assert facts_of(CONFIGS["Qwen/Qwen3.5-35B-A3B"]).unread == ()
    # The layers with experts are listed, too.
    assert facts_of(CONFIGS["deepseek-ai/DeepSeek-V3.2"]).unread == ()
    listed = {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 58}
    assert facts_of(CONFIGS["deepseek-ai/DeepSeek-V3.2"] | listed).unread == ()
    assert facts_of(CONFIGS["deepseek-ai/DeepSeek-V4-Flash"]).unread == ()
    assert facts_of(CONFIGS["Qwen/Qwen3-8B"] | {"memory_slots": 9}).unread == ("memory_slots",)


@pytest.mark.parametrize(
    "change",
    [
        {"sliding_window_pattern": "LLLG", "sliding_window": 4096},
        {"max_position_embeddings": 131072.0},
        {"max_position_embeddings": "40"},
        {"intermediate_size": [14336, None]},
        {"torch_dtype": "auto"},
        {"hidden_size": 4100, "head_dim": None},
    ],
)
def test_odd_types_are_read_as_vllm_reads_them(change: dict[str, Any]) -> None:
    assert facts_of(CONFIGS["Qwen/Qwen3-8B"] | change).weights.total > 0


ODD: tuple[object, ...] = (
    None, "", "auto", "40", 0, -1, 1.5, 1e400, True, False, [], {}, [4096, None], [None], ["a"],
    {"a": 1}, [[1]], 2**31 - 1, 2**40, "LLLG", "0.5", "4096.0", "true", [{"a": 1}], {"0": {}},
    {"full_attention": None}, {"full_attention": {"partial_rotary_factor": "x"}},
)  # fmt: skip


NAMES = """
    quantization_config compression_config rope_scaling rope_parameters sliding_window layer_types
    vision_config audio_config qformer_config encoder_config text_config thinker_config head_dim
    num_experts architectures mamba_d_state linear_num_value_heads kv_lora_rank index_head_dim
    indexer_types layers_block_type per_layer_config block_configs tie_word_embeddings dtype
    is_encoder_decoder model_type num_nextn_predict_layers moe_layer_freq hybrid_layer_pattern
    num_kv_shared_layers attention_chunk_size use_sliding_window compress_ratios rotary_dim
"""


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Yield what holds each value of a file, however deep, and its name or place there."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:3]) if isinstance(value, list) else items
    for name, each in items:
        yield value, name
        yield from places(each)


def test_no_value_of_a_field_ends_a_plan() -> None:
    """What is odd leaves the size unknown, and never takes the memory of its number."""
    chance = random.Random(39)
    # A field may say how often something is looked at, so no file of many modules.
    files = [each for each in CONFIGS.values() if len(str(each)) < 4000]
    unknown = 0
    for _ in range(300):
        config = json.loads(json.dumps(chance.choice(files)))
        inner = [(each, chance.choice(NAMES.split())) for each in (config, *config.values())]
        added = [(each, name) for each, name in inner if isinstance(each, dict)]
        place, name = chance.choice(chance.choice([list(places(config)), added]))
        place[name] = json.loads(json.dumps(chance.choice(ODD)))
        try:
            facts = facts_of(config)
        except MissingFieldError:
            unknown += 1
            continue
        step, cache = Step(tokens=2048, sequences=256), CacheKind(dtype_bytes=2, length=4096)
        made = estimate_memory(facts, degrees=(1, 1), budget=70 * GIB, cache=cache, step=step)
        least, most = made.token_range
        assert 0 <= least <= most
    assert 30 < unknown < 220


@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_are_the_concurrency_times_the_length(name: str) -> None:
    facts = facts_of(CONFIGS[name])
    for release, length in itertools.product(((0, 20), (0, 20, 2)), (8, 65536)):
        step = Step(tokens=2048, sequences=256, release=release)
        cache = CacheKind(dtype_bytes=2, length=length)
        made = estimate_memory(facts, degrees=(1, 1), budget=4000 * GIB, cache=cache, step=step)
        assert 0 <= made.concurrency * length - made.num_tokens < 1
        assert made.concurrency or not made.block_bytes


def test_lfm2_adjusts_its_width() -> None:
    config = CONFIGS["Qwen/Qwen3-8B"] | {
        "model_type": "lfm2", "intermediate_size": 12288, "block_auto_adjust_ff_dim": True,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "conv_L_cache": 3,
        "layer_types": ["conv", "full_attention"] * 18,
    }  # fmt: skip
    found = facts_of(config)
    assert (found.shape.intermediate_size, found.cache.states.layers, found.cache.layers) == (
        8192,
        18,
        18,
    )
    assert found.cache.states.convolved == 2 * found.shape.hidden_size


@pytest.mark.parametrize(
    ("model", "tensor", "logged"),
    [
        ("nvidia/GLM-5.2-NVFP4", 4, 106.69),
        ("zai-org/GLM-5.1-FP8", 8, 89.39),
        ("Qwen/Qwen3-32B", 2, 30.59),
        ("openai/gpt-oss-20b", 1, 13.72),
    ],
)
def test_what_devices_do_not_share_is_counted(model: str, tensor: int, logged: float) -> None:
    """Latent projections, indexers and routers are whole on each; rotations are stretched."""
    rows = (log for log in logs() if log.row["model"] == model)
    found = next(log for log in rows if log.row["tp"] == str(tensor))
    assert found.estimate.weights / GIB == pytest.approx(logged, rel=0.01)


def test_what_was_logged_is_near_or_in_the_range() -> None:
    found = compared(logs())
    assert len(found) >= 7
    assert [log.row["model"] for log in found if not log.has_range] == []
    assert statistics.median(abs(log.error) for log in found) <= 1.5
    # One has 3.7 GiB left of 27 for its cache, and of the other vLLM expects 5 GiB of graphs.
    assert {log.row["model"] for log in found if abs(log.error) > 8} == {
        "chankhavu/Nemotron-Cascade-2-30B-A3B-NVFP4",
        "nvidia/GLM-5.2-NVFP4",
    }
    most = sum(log.error > 0 for log in found)
    assert len(found) / 3 <= most <= len(found) * 2 / 3


WHISPER = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32}


@pytest.mark.parametrize(
    ("kind", "hidden", "parameters"),
    [("glmasr", 2048, 664_415_232), ("voxtral", 3072, 662_134_784)],
)
def test_encoders_are_counted_with_their_projections(
    kind: str, hidden: int, parameters: int
) -> None:
    """As Transformers makes those of the classes' defaults."""
    text = CONFIGS["Qwen/Qwen3-8B"] | {"hidden_size": hidden}
    found = facts_of({"model_type": kind, "text_config": text, "audio_config": WHISPER})
    assert found.shape.vision_parameters == pytest.approx(parameters, rel=0.035)
