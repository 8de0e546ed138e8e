"""What a step takes; tests/data/planner has the logs beside which these figures stand."""

from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.printable import GIB
from lmi_backend.sizing.step import (
    AMPERE,
    FLOAT_KERNELS,
    Release,
    Step,
    cuda_graphs,
    deducted_buffers,
    has_second_runner,
    non_torch,
    peak_activation,
)
from tests.support.records.facts import LLAMA_3_8B, with_fields
from tests.unit.sizing.test_memory import DEEPSEEK_V3

SERVER = Step(tokens=8192, sequences=1024)


def peak(release: Release, **changes: Any) -> float:
    step = replace(SERVER, release=release, **changes)
    return peak_activation(LLAMA_3_8B, step, tensor=1) / GIB


@pytest.mark.parametrize(
    ("release", "gib"),
    [
        ((0, 11), 4.76),  # PyTorch sorts the logits
        ((0, 16), 4.76),
        ((0, 17), 1.89),  # Triton does not
        ((0, 21), 1.82),  # nor does FlashInfer, which has no rows of its own
        ((0, 23), 0.90),  # the second model runner's trial run samples greedily
        ((0, 27), 0.90),
        ((0, 32), 0.90),
    ],
)
def test_each_release_has_its_sampler(release: Release, gib: float) -> None:
    assert peak(release) == pytest.approx(gib, abs=0.02)


def test_the_first_of_several_stages_does_not_sample() -> None:
    step = replace(SERVER, release=(0, 19))
    first = peak_activation(LLAMA_3_8B, step, tensor=1, is_staged=True, samples=False)
    last = peak_activation(LLAMA_3_8B, step, tensor=1, is_staged=True)
    assert first / GIB == pytest.approx(1.1, abs=0.03)
    assert last / GIB == pytest.approx(1.89, abs=0.02)


def test_experts_keep_their_workspace_while_logits_are_sampled() -> None:
    moe = with_fields(
        LLAMA_3_8B, num_experts=64, experts_per_token=8, expert_intermediate_size=1024
    )
    step = replace(SERVER, release=(0, 19))
    workspace = 8192 * 8 * (4096 + 4096) * 2
    with_experts = peak_activation(moe, step, tensor=1)
    assert with_experts - peak_activation(LLAMA_3_8B, step, tensor=1) == workspace
    assert peak_activation(with_fields(moe, quantization="mxfp4"), step, tensor=1) < with_experts


@pytest.mark.parametrize(
    ("release", "tensor", "pipeline", "gib"),
    [
        ((0, 11), 1, 1, 0.13),
        ((0, 18), 1, 1, 0.25),
        ((0, 22), 1, 1, 0.9),  # FlashInfer's kernels
        ((0, 23), 1, 1, 0.25),  # the second runner does not try them
        ((0, 15), 2, 1, 0.55),
        ((0, 19), 2, 1, 2.08),
        ((0, 19), 1, 2, 0.07),
        ((0, 19), 2, 2, 0.67),  # stages forbid the fused all-reduce
    ],
)
def test_more_devices_take_more_beside_pytorch(
    release: Release, tensor: int, pipeline: int, gib: float
) -> None:
    found = non_torch(
        LLAMA_3_8B, replace(SERVER, release=release), tensor=tensor, pipeline=pipeline
    )
    assert found / GIB == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize("capability", [75, AMPERE, 89, 100, 120])
def test_buffers_of_several_devices_are_a_hoppers(capability: int) -> None:
    """As logs of L40S, RTX PRO 6000 and GB200 with two and four devices lack them."""
    others = replace(SERVER, release=(0, 19), capability=capability)
    for tensor in (1, 4):
        found = non_torch(LLAMA_3_8B, others, tensor=tensor, pipeline=1)
        assert found / GIB == pytest.approx(0.25, abs=0.01)


def test_a_plain_models_graphs_are_not_deducted_by_the_second_runner_before_0_29() -> None:
    step = replace(SERVER, release=(0, 27))
    quantised = with_fields(LLAMA_3_8B, quantization="awq")
    assert cuda_graphs(LLAMA_3_8B, step, layers=32) == 0
    assert cuda_graphs(quantised, step, layers=32) > 0
    assert cuda_graphs(LLAMA_3_8B, step, layers=16) > 0
    assert cuda_graphs(LLAMA_3_8B, replace(step, release=(0, 29)), layers=32) > 0


@pytest.mark.parametrize(
    ("changes", "layers", "least", "most"),
    [
        ({"release": (0, 19)}, 32, 0, 0),
        ({"release": (0, 20)}, 32, 0.7, 1),
        ({"release": (0, 20), "graphs": False}, 32, 0, 0),
        ({"release": (0, 20)}, 80, 1.4, 1.9),
        ({"release": (0, 20), "sequences": 2}, 64, 0.1, 0.3),
    ],
)
def test_graphs_are_deducted_where_vllm_deducts_them(
    changes: dict[str, Any], layers: int, least: float, most: float
) -> None:
    found = cuda_graphs(LLAMA_3_8B, replace(SERVER, **changes), layers=layers)
    assert least <= found / GIB <= most


@pytest.mark.parametrize(
    ("architecture", "release", "is_second"),
    [
        ("Qwen3ForCausalLM", (0, 21), False),
        ("Qwen3ForCausalLM", (0, 22), True),
        ("LlamaForCausalLM", (0, 22), False),
        ("LlamaForCausalLM", (0, 23), True),
        ("PhiForCausalLM", (0, 24), False),
        ("PhiForCausalLM", (0, 25), True),
    ],
)
def test_the_second_runner_came_model_by_model(
    architecture: str, release: Release, is_second: bool
) -> None:
    facts = with_fields(LLAMA_3_8B, architecture=architecture)
    assert has_second_runner(replace(SERVER, release=release), facts) is is_second


def test_experts_and_hybrids_waited_for_it() -> None:
    moe = with_fields(DEEPSEEK_V3, architecture="DeepseekV3ForCausalLM")
    hybrid = with_fields(LLAMA_3_8B, architecture="BambaForCausalLM", layers=8)
    for facts in (moe, hybrid):
        assert not has_second_runner(replace(SERVER, release=(0, 28)), facts)
        assert has_second_runner(replace(SERVER, release=(0, 29)), facts)


def test_counts_for_penalties_are_deducted_from_027_on() -> None:
    assert deducted_buffers(LLAMA_3_8B, replace(SERVER, release=(0, 26))) == 0
    kept = deducted_buffers(LLAMA_3_8B, replace(SERVER, release=(0, 27)))
    assert kept == 1024 * 128256 * 33 // 8


def test_kernels_of_4_bits_are_in_the_graphs() -> None:
    step = replace(SERVER, release=(0, 22))
    more = cuda_graphs(with_fields(LLAMA_3_8B, has_4_bit_floats=True), step, layers=32)
    assert more - cuda_graphs(LLAMA_3_8B, step, layers=32) == FLOAT_KERNELS
