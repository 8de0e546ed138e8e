"""What options, device and release say of a step and of its memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.options import load_options
from lmi_backend.plan.capacity import Capacity
from lmi_backend.plan.hardware import Hardware
from lmi_backend.sizing.kv_layers import LocalAttention
from lmi_backend.sizing.step import NEWEST, Release
from lmi_backend.units import GIB
from tests.unit.sizing.test_memory import LLAMA_3_8B


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
