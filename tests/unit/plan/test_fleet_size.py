import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from lmi_backend.cli import main
from lmi_backend.errors import PlanError
from lmi_backend.options import load_options
from lmi_backend.plan import plan_model
from lmi_backend.plan.engine_plan import EnginePlan
from lmi_backend.plan.fleet_size import FleetSize, GpuSpeed, Load, fleet_lines, size_fleet
from lmi_backend.plan.hardware import Hardware

TESTS = Path(__file__).resolve().parents[2]
CONFIGS = json.loads((TESTS / "data" / "planner" / "configs.json").read_text("utf-8"))
LOAD = Load(requests=50, prompt_tokens=2000, answer_tokens=300, first_token=1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    config = CONFIGS["meta-llama/Llama-3.1-8B-Instruct"]
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    text = "option.rolling_batch=vllm\noption.max_model_len=32768\n"
    (folder / "serving.properties").write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def plan(folder: Path) -> EnginePlan:
    hardware = Hardware(devices=("0",), device_memory=80 << 30)
    return plan_model(load_options(folder, {}), {}, hardware=hardware)


def _size(plan: EnginePlan, **changed: float) -> FleetSize:
    return size_fleet(plan, replace(LOAD, **changed), GpuSpeed())


def test_a_reckoning_by_hand(plan: EnginePlan) -> None:
    """16.06 GB of weights at 395.6e12 bytes/s: 81 ms for a prompt of 2,000 tokens."""
    found = _size(plan, answer_tokens=10)
    prompt = 8.03e9 * 2 * 2000 / (989e12 * 0.4)
    assert found.replicas == math.ceil(50 * prompt / 0.8)
    assert found.replica.prompt_share == pytest.approx(50 * prompt / found.replicas, rel=0.01)
    waits = prompt * found.replica.prompt_share / (1 - found.replica.prompt_share)
    assert found.replica.first_token == pytest.approx(prompt + waits + found.replica.step, rel=0.01)
    assert "of a replica's time" in found.limit


def test_more_of_anything_takes_no_fewer(plan: EnginePlan) -> None:
    for name, values in {
        "requests": (1, 10, 100, 1000),
        "prompt_tokens": (100, 1000, 10_000),
        "answer_tokens": (10, 100, 1000),
        "first_token": (10, 1, 0.3),
    }.items():
        counts = [_size(plan, **{name: value}).replicas for value in values]
        assert counts == sorted(counts)
        assert name == "first_token" or counts[0] < counts[-1]


def test_running_requests_are_what_arrives_times_how_long_each_takes(plan: EnginePlan) -> None:
    found = _size(plan, requests=5)
    each = 300 * found.replica.step + 0.0812
    assert found.replica.running == pytest.approx(5 / found.replicas * each, rel=0.02)


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({}, "more than 256 requests would run at once"),
        ({"answer_tokens": 10}, "of a replica's time"),
        ({"answer_tokens": 4000}, "tokens would be held, of 469152 that fit"),
        ({"first_token": 0.12}, "the first token would take"),
    ],
)
def test_what_limits_is_said(plan: EnginePlan, changed: dict[str, float], limit: str) -> None:
    assert limit in _size(plan, **changed).limit


def test_what_no_number_carries_is_refused(plan: EnginePlan) -> None:
    with pytest.raises(PlanError, match="no number of replicas carries it: the first token"):
        _size(plan, first_token=0.01)
    with pytest.raises(PlanError, match="one request has 1000300 tokens"):
        _size(plan, prompt_tokens=1_000_000)
    with pytest.raises(PlanError, match="--gpus, --gpu-memory"):
        size_fleet(replace(plan, memory=None), LOAD, GpuSpeed())


def test_nodes_are_counted_in_whole_replicas(plan: EnginePlan) -> None:
    lines = list(fleet_lines(plan, LOAD, GpuSpeed(), 4))
    assert lines[:2] == [
        "fleet       8 replicas of 1 GPUs",
        "nodes       2 of 4 GPUs, 4 replicas on each",
    ]
    assert len([line for line in lines if line.startswith("assumed")]) == 4


def test_the_command_says_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(folder), "--gpus", "1", "--gpu-memory", "80GiB"]
    words += ["--requests-per-second", "50", "--prompt-tokens", "2000", "--answer-tokens", "300"]
    assert main.main(words) == 0
    assert "fleet       8 replicas of 1 GPUs\n" in capsys.readouterr().out
    assert main.main([*words, "--ttft", "0"]) == 2
    assert "--ttft 0.0; accepted: more than 0" in capsys.readouterr().err
