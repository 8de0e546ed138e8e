"""What options, device and release say of a step and of its memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.options import load_options, resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.capacity import Capacity
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.sizing.kv_layers import LocalAttention
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.step import NEWEST, Release
from lmi_backend.units import GIB
from tests.unit.sizing.test_memory import LLAMA_3_8B

# A token takes 128 KiB.
SMALL_ON_CPU = replace(LLAMA_3_8B, weight_bytes=2 * GIB, max_position_embeddings=2048)


def capacity(
    folder: Path, properties: str = "", release: Release = NEWEST, **hardware: int
) -> Capacity:
    (folder / "serving.properties").write_text(f"option.model_id=org/model\n{properties}")
    machine: dict[str, Any] = {"device_memory": 80 * GIB} | hardware
    options = load_options(folder, {})
    return Capacity(options, Hardware(devices=("0",), **machine), LLAMA_3_8B, {}, 256, release)


@pytest.mark.parametrize(
    ("properties", "release", "share"),
    [
        ("", (0, 19), 0.9),
        ("", (0, 20), 0.92),
        ("option.gpu_memory_utilization=0.8\n", (0, 19), 0.8),
        ("option.rolling_batch=lmi-dist\n", (0, 32), 0.9),
    ],
)
def test_the_share_of_the_memory_is_the_releases(
    properties: str, release: Release, share: float, tmp_path: Path
) -> None:
    assert capacity(tmp_path, properties, release).utilization == share


def test_a_step_has_as_many_tokens_as_vllm_takes_by_itself(tmp_path: Path) -> None:
    """In an engine that is not its server's: 2048 on every device."""
    assert capacity(tmp_path).step.tokens == 2048
    asked = capacity(tmp_path, "option.max_rolling_batch_prefill_tokens=512\n")
    assert asked.step.tokens == 512


@pytest.mark.parametrize(
    ("hardware", "capability"),
    [
        ({}, 90),
        ({"device_memory": 24 * GIB}, 80),
        ({"capability": 80}, 80),
        ({"device_memory": 32 * GIB, "capability": 120}, 120),
    ],
)
def test_a_large_device_is_taken_for_a_hopper_unless_it_says(
    hardware: dict[str, Any], capability: int, tmp_path: Path
) -> None:
    assert capacity(tmp_path, **hardware).step.capability == capability


@pytest.mark.parametrize(
    ("properties", "graphs", "prefixes"),
    [
        ("", True, None),
        ("option.enforce_eager=true\n", False, None),
        ("option.rolling_batch=lmi-dist\n", True, False),
        ("option.rolling_batch=disable\n", False, None),
    ],
)
def test_graphs_and_prefixes_are_the_engines(
    properties: str, graphs: bool, prefixes: bool | None, tmp_path: Path
) -> None:
    step = capacity(tmp_path, properties).step
    assert (step.graphs, step.prefix_caching) == (graphs, prefixes)


def test_a_model_of_windows_alone_fits_for_any_length(tmp_path: Path) -> None:

    long = "option.max_model_len=1000000\n"
    full = capacity(tmp_path, long, device_memory=24 * GIB)
    windows = replace(full, facts=replace(LLAMA_3_8B, local=LocalAttention(32, 4096)))
    assert not full.fits(full.estimate(1, 1))
    assert windows.fits(windows.estimate(1, 1))


def on_cpu(text: str, host: int, facts: ModelFacts = SMALL_ON_CPU) -> EnginePlan:
    lines = parse_properties(f"option.model_id=org/m\noption.rolling_batch=disable\n{text}")
    options = resolve_options(lines, {}, folder=Path("/models/m"))
    return make_plan(options, {"PATH": "/bin"}, Hardware(host_memory=host), facts)


@pytest.mark.parametrize(
    ("text", "host", "tokens"),
    [
        # 1024 tokens for each request at once, where there is the memory.
        ("option.max_rolling_batch_size=4", 64 * GIB, 4 * 1024),
        ("option.max_rolling_batch_size=64", 64 * GIB, 64 * 1024),
        # One sequence of the longest kind in any case.
        ("option.max_rolling_batch_size=1", 64 * GIB, 2048),
        # A quarter of what the weights leave.
        ("option.max_rolling_batch_size=64", 6 * GIB, 1 * GIB // (1 << 17)),
        ("option.max_rolling_batch_size=64\nminWorkers=2", 12 * GIB, 1 * GIB // (1 << 17)),
        # As it is said.
        ("option.env=VLLM_CPU_KVCACHE_SPACE=1", 64 * GIB, GIB // (1 << 17)),
        # What is stored in 32 bits stays so, and so does the cache.
        ("option.max_rolling_batch_size=64\noption.dtype=fp32", 8 * GIB, GIB // (1 << 18)),
    ],
)
def test_the_cache_on_a_cpu_follows_from_model_host_and_requests(
    text: str, host: int, tokens: int
) -> None:
    made = on_cpu(text, host)
    assert made.memory
    assert made.memory.num_tokens == tokens
    sizes = made.config.arguments
    assert (sizes["page_size"], sizes["num_blocks"]) == (128, tokens // 128)


def test_what_the_host_cannot_hold_is_refused_with_numbers() -> None:
    with pytest.raises(PlanError) as refusal:
        on_cpu("", 2 * GIB)
    said = str(refusal.value)
    assert "host's memory: 1 x 2.0 GiB for weights, and 16.0 MiB each for 128 tokens" in said
    assert "2.0 GiB are available; accepted: a smaller" in said


def test_a_sequence_longer_than_the_cache_is_said() -> None:
    longer = replace(SMALL_ON_CPU, max_position_embeddings=131072)
    made = on_cpu("option.max_rolling_batch_size=64", 6 * GIB, longer)
    assert any("a request may have 8192 tokens, not the model's 131072" in n for n in made.notes)


def test_every_layer_of_transformers_has_a_block_of_its_own() -> None:
    windows = replace(SMALL_ON_CPU, local=LocalAttention(layers=16, window=512))
    plain, local = (on_cpu("", 64 * GIB, facts).memory for facts in (SMALL_ON_CPU, windows))
    assert plain
    assert local
    assert plain.block_bytes == local.block_bytes
