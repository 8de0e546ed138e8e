"""What options, device and release say of a step and of its memory."""

from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.capacity import Capacity, describe
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.memory_options import adapter_slots
from lmi_backend.plan.planner import make_plan
from lmi_backend.printable import GIB
from lmi_backend.sizing.kv_layers import LocalAttention
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.step import NEWEST, Release
from tests.support.records.facts import LLAMA_3_8B, with_fields
from tests.support.records.plans import options_of, plan_of

# A token takes 128 KiB.
SMALL_ON_CPU = with_fields(LLAMA_3_8B, total=2 * GIB, max_position_embeddings=2048)


def capacity(properties: str = "", release: Release = NEWEST, **hardware: int) -> Capacity:
    options = options_of(f"option.model_id=org/model\n{properties}")
    machine: dict[str, Any] = {"device_memory": 80 * GIB} | hardware
    return Capacity(options, Hardware(devices=("0",), **machine), LLAMA_3_8B, {}, 256, release)


def changed(made: Capacity, **fields: Any) -> Capacity:
    names = ("options", "hardware", "facts", "environment", "max_running", "release")
    return Capacity(**{name: getattr(made, name) for name in names} | fields)


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
    properties: str, release: Release, share: float
) -> None:
    assert capacity(properties, release).utilization == share


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
    hardware: dict[str, Any], capability: int
) -> None:
    assert capacity(**hardware).step.capability == capability


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
    properties: str, graphs: bool, prefixes: bool | None
) -> None:
    step = capacity(properties).step
    assert (step.graphs, step.prefix_caching) == (graphs, prefixes)


@pytest.mark.parametrize(("less", "could"), [(0, True), (1, False)])
def test_it_may_fit_if_a_step_took_nothing(less: int, *, could: bool) -> None:
    """The weights and a sequence of the longest kind are certain; the rest is estimated."""
    measured = capacity()
    estimate = replace(measured.estimate(1, 1), more=5)
    needed = 8192 // 16 * estimate.block_bytes
    tight = replace(estimate, kv_cache=needed - estimate.step - estimate.more - less)
    assert (measured.could_fit(tight), measured.fits(tight)) == (could, False)
    # A model without a cache needs but its weights.
    none = replace(tight, block_bytes=0, kv_cache=1 - less - estimate.step - estimate.more)
    assert measured.could_fit(none) is could


@pytest.mark.parametrize(("less", "fits"), [(0, True), (1, False)])
def test_it_fits_with_a_sequence_of_the_longest_kind(less: int, *, fits: bool) -> None:
    measured = capacity()
    estimate = replace(measured.estimate(1, 1), less=7)
    needed = 8192 // 16 * estimate.block_bytes - less
    assert measured.fits(replace(estimate, kv_cache=needed)) is fits
    assert measured.surely_fits(replace(estimate, kv_cache=needed + 7)) is fits
    assert measured.fits(replace(estimate, block_bytes=0, kv_cache=1 - less)) is fits


def test_a_model_of_windows_alone_fits_for_any_length() -> None:

    long = "option.max_model_len=1000000\n"
    full = capacity(long, device_memory=24 * GIB)
    windows = changed(full, facts=with_fields(LLAMA_3_8B, local=LocalAttention(32, 4096)))
    assert not full.fits(full.estimate(1, 1))
    assert windows.fits(windows.estimate(1, 1))


def on_cpu(text: str, host: int, facts: ModelFacts = SMALL_ON_CPU) -> EnginePlan:
    lines = f"option.model_id=org/m\noption.rolling_batch=disable\n{text}"
    return plan_of(lines, Hardware(host_memory=host), facts)


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
    message = str(refusal.value)
    assert "host's memory: 1 x 2.0 GiB for weights, and 16.0 MiB each for 128 tokens" in message
    assert "2.0 GiB are available; accepted: a smaller" in message


def test_every_layer_of_transformers_has_a_block_of_its_own() -> None:
    windows = with_fields(SMALL_ON_CPU, local=LocalAttention(layers=16, window=512))
    plain, local = (on_cpu("", 64 * GIB, facts).memory for facts in (SMALL_ON_CPU, windows))
    assert plain
    assert local
    assert plain.block_bytes == local.block_bytes


def test_blocks_that_are_given_are_those_of_a_cpu_too() -> None:
    given = capacity("option.num_gpu_blocks_override=704\n")
    found = changed(given, environment={"VLLM_CPU_KVCACHE_SPACE": "1"}).estimate_on_cpu(1, 1)
    assert found
    assert found.num_tokens == 704 * 128


@pytest.mark.parametrize(
    ("properties", "gib"),
    [
        ("option.kv_cache_memory_bytes=4294967296\n", 4.0),
        ("option.num_gpu_blocks_override=1024\n", 2.0),
    ],
)
def test_a_cache_whose_size_is_given_has_it(properties: str, gib: float) -> None:
    found = capacity(properties).estimate(1, 1)
    assert found.kv_cache / GIB == gib
    assert found.token_range == (found.num_tokens, found.num_tokens)


@pytest.mark.parametrize(
    ("properties", "slots"),
    [
        ("", 0),
        ("option.enable_lora=true", 4 * 16 * 2),
        ("option.enable_lora=true\noption.max_loras=1\noption.max_lora_rank=64", 64 * 2),
        ("option.enable_lora=true\noption.max_loras=1\noption.lora_dtype=fp32", 16 * 4),
        ("option.rolling_batch=trtllm\noption.enable_lora=true", 0),
    ],
)
def test_slots_of_adapters_are_counted_by_rank_and_type(properties: str, slots: int) -> None:
    assert adapter_slots(options_of(properties)) == slots


def test_no_more_is_kept_on_the_host_than_there_is() -> None:
    plain = capacity().estimate(1, 1)
    found = capacity("option.cpu_offload_gb=200\n").estimate(1, 1)
    assert found.kv_cache == plain.kv_cache + plain.weights


def test_an_engine_may_choose_the_longest_sequence() -> None:
    found = capacity("option.max_model_len=auto\n", device_memory=20 * GIB)
    estimate = found.estimate(1, 1)
    assert found.fits(estimate)
    assert 0 < estimate.length == min(found.longest, estimate.longest)


@pytest.mark.parametrize(("word", "share"), [("nvfp4", 9 / 32), ("fp8_e4m3", 0.5)])
def test_a_cache_of_fewer_bits_holds_more(word: str, share: float) -> None:
    plain = capacity().estimate(1, 1)
    found = capacity(f"option.kv_cache_dtype={word}\n").estimate(1, 1)
    assert found.block_bytes == pytest.approx(plain.block_bytes * share, rel=0.001)


def test_sparse_attention_packs_its_cache_of_8_bits() -> None:
    asked = capacity("option.kv_cache_dtype=fp8\n")
    sparse = with_fields(LLAMA_3_8B, is_mla=True, values=576, index_bytes=132)
    dense = changed(asked, facts=with_fields(sparse, index_bytes=0)).estimate(1, 1)
    assert dense.block_bytes == 576 * 16 * 32
    assert changed(asked, facts=sparse).estimate(1, 1).block_bytes == (656 + 132) * 16 * 32


def test_copies_have_the_experts_together() -> None:
    mixture = with_fields(LLAMA_3_8B, expert_share=0.9)
    found = changed(capacity("option.data_parallel_size=8\n"), facts=mixture).estimate(1, 1)
    plain = capacity().estimate(1, 1)
    assert found.weights == pytest.approx(plain.weights * (0.1 + 0.9 / 8), rel=0.02)


def test_a_plan_names_what_it_does_not_count_and_a_range() -> None:
    found = capacity()
    odd = changed(found, facts=replace(LLAMA_3_8B, unread=("memory_slots",)))
    description = describe(odd, odd.estimate(1, 1))
    assert any("not counted" in line and "memory_slots" in line for line in description)
    assert any("between" in line for line in description)


@pytest.mark.parametrize(
    ("properties", "tokens", "devices"),
    [
        ("option.decode_context_parallel_size=2\n", 2, 2),
        ("option.prefill_context_parallel_size=2\n", 1, 4),
        (
            "option.prefill_context_parallel_size=2\noption.decode_context_parallel_size=4\n",
            4,
            4,
        ),
    ],
)
def test_ranks_share_the_context(properties: str, tokens: int, devices: int) -> None:
    """For decoding they share a sequence's cache; for prefill they are further ranks."""
    split = "option.tensor_parallel_degree=2\n"
    plain = capacity(split).estimate(2, 1)
    asked = capacity(split + properties)
    found = asked.estimate(2, 1)
    assert found.num_blocks == plain.num_blocks
    assert found.num_tokens == pytest.approx(tokens * plain.num_tokens, rel=0.01)
    assert found.longest == pytest.approx(tokens * plain.longest, rel=0.01)
    machine = Hardware(devices=("0", "1", "2", "3"), device_memory=80 * GIB)
    plan = make_plan(asked.options, {}, machine, LLAMA_3_8B)
    assert len(plan.parallel.device_groups[0]) == devices


@pytest.mark.parametrize(
    ("properties", "has_encoder"),
    [
        ("", True),
        ("option.language_model_only=false\n", True),
        ("option.language_model_only=true\n", False),
        ('option.limit_mm_per_prompt={"image": 0}\n', True),
        ('option.limit_mm_per_prompt={"image": 0, "video": 0}\n', False),
    ],
)
def test_encoders_that_are_left_out_take_nothing(properties: str, has_encoder: bool) -> None:
    """As in three logs of a GB10, whose weights are smaller by those of the encoder."""
    facts = with_fields(LLAMA_3_8B, vision_parameters=GIB // 2)
    found = changed(capacity(properties), facts=facts).estimate(1, 1)
    without = capacity(properties).estimate(1, 1)
    assert found.weights - without.weights == pytest.approx(0 if has_encoder else -GIB, abs=1)
    assert (found.less > without.less) == has_encoder


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ('{"audio": 0}', 3),
        ('{"image": 0, "video": 0}', 1),
        ('{"image": 0, "video": 0, "audio": 0}', 0),
    ],
)
def test_an_encoder_is_left_out_where_nothing_is_for_it(limits: str, left: int) -> None:
    """Three parts of four are of images, and one is of sounds."""
    facts = with_fields(LLAMA_3_8B, vision_parameters=4 * GIB, sound_parameters=GIB)
    asked = changed(capacity(f"option.limit_mm_per_prompt={limits}\n"), facts=facts)
    without = capacity().estimate(1, 1)
    assert without.weights - asked.estimate(1, 1).weights == pytest.approx(
        (4 - left) * 2 * GIB, abs=1
    )


def test_graphs_of_the_sizes_that_are_captured() -> None:
    every = capacity().estimate(1, 1).cuda_graphs
    for text in ("option.cuda_graph_sizes=1,2,4\n", "option.cudagraph_capture_sizes=[1, 2, 4]\n"):
        asked = capacity(text)
        assert asked.step.captured == (1, 2, 4)
        assert 0 < asked.estimate(1, 1).cuda_graphs < every / 2


def test_stages_may_have_other_numbers_of_layers() -> None:
    asked = capacity()
    even, uneven, other = (
        changed(asked, environment={"VLLM_PP_LAYER_PARTITION": text}).estimate(1, 2)
        for text in ("", "24,8", "3,4")
    )
    assert uneven.weights > 1.3 * even.weights
    assert uneven.block_bytes == 1.5 * even.block_bytes
    assert other == even
