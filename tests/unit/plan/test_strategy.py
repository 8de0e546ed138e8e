import pytest

from lmi_backend.errors import LmiError, OptionError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.printable import GIB
from lmi_backend.sizing.model_facts import ModelFacts
from tests.support.records.facts import LLAMA_3_8B, with_fields
from tests.support.records.plans import plan_of

LLAMA_70B = with_fields(
    LLAMA_3_8B,
    num_layers=80,
    hidden_size=8192,
    num_heads=64,
    intermediate_size=28672,
    total=141_107_412_992,
    layers=80,
)
TWELVE_HEADS = with_fields(
    LLAMA_70B,
    num_layers=12,
    hidden_size=768,
    num_heads=12,
    num_kv_heads=12,
    head_dim=64,
    intermediate_size=3072,
    total=250_000_000,
    values=1536,
    layers=12,
)


def plan(
    text: str,
    facts: ModelFacts | None = LLAMA_70B,
    *,
    gpus: int = 8,
    memory: int = 80,
    nodes: int = 1,
) -> EnginePlan:
    names = tuple(map(str, range(gpus)))
    hardware = Hardware(devices=names, device_memory=memory * GIB, nodes=nodes)
    return plan_of(f"option.model_id=org/m\n{text}", hardware, facts)


def test_more_devices_are_never_a_reason_to_need_more() -> None:
    """What fits on some devices also fits when the machine has more of them."""
    for memory in (24, 40, 80, 192):
        sizes = [plan("", gpus=gpus, memory=memory).parallel.world_size for gpus in (8, 16)]
        assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("option.tensor_parallel_degree=max", (4, 2, 1)),
        ("option.tensor_parallel_degree=max\noption.pipeline_parallel_degree=2", (4, 2, 1)),
        ("option.tensor_parallel_degree=max\noption.pipeline_parallel_degree=1", (6, 1, 1)),
        ("option.tensor_parallel_degree=6", (6, 1, 1)),
        ("option.tensor_parallel_degree=2", (2, 1, 4)),
        ("", (1, 1, 8)),
    ],
)
def test_heads_decide_what_max_is(text: str, shape: tuple[int, int, int]) -> None:
    made = plan(text, TWELVE_HEADS)
    degrees = (made.parallel.tensor_parallel_degree, made.parallel.pipeline_parallel_degree)
    assert (*degrees, made.parallel.workers) == shape


def test_an_engine_may_use_less_of_a_device() -> None:
    whole = plan("option.tensor_parallel_degree=4").memory
    less = plan("option.tensor_parallel_degree=4\noption.gpu_memory_utilization=0.6").memory
    fp8 = plan("option.tensor_parallel_degree=4\noption.kv_cache_dtype=fp8").memory
    kept = plan("option.tensor_parallel_degree=4\ngpu.reserved_memory_mb=20480").memory
    assert whole
    assert less
    assert fp8
    assert kept
    assert less.kv_cache < whole.kv_cache - 20 * GIB
    assert kept.kv_cache < whole.kv_cache
    assert fp8.num_tokens == pytest.approx(2 * whole.num_tokens, rel=0.01)


@pytest.mark.parametrize("gpus", range(1, 17))
@pytest.mark.parametrize("memory", [16, 24, 80])
@pytest.mark.parametrize("nodes", [1, 2])
def test_every_plan_is_consistent(gpus: int, memory: int, nodes: int) -> None:
    for text in ("", "option.tensor_parallel_degree=max", "option.pipeline_parallel_degree=2"):
        for facts in (LLAMA_70B, TWELVE_HEADS, None):
            try:
                made = plan(text, facts, gpus=gpus, memory=memory, nodes=nodes)
            except LmiError:
                continue
            assert made.parallel.world_size <= gpus * nodes
            assert made.parallel.workers * min(made.parallel.world_size, gpus) <= gpus
            assert (
                facts is None or facts.shape.num_heads % made.parallel.tensor_parallel_degree == 0
            )
            used = [device for group in made.parallel.device_groups for device in group]
            assert len(set(used)) == len(used)


def test_data_parallel_copies_have_devices_of_their_own() -> None:
    made = plan("option.data_parallel_size=2\noption.tensor_parallel_degree=2", TWELVE_HEADS)
    assert [len(group) for group in made.parallel.device_groups] == [4, 4]
    whole = plan("option.data_parallel_size=2\noption.tensor_parallel_degree=max")
    assert (whole.parallel.tensor_parallel_degree, whole.parallel.workers) == (4, 1)
    assert whole.config.arguments["data_parallel_size"] == 2
    with pytest.raises(OptionError, match="needs as many devices; 8 usable"):
        plan("option.data_parallel_size=9")


def test_stages_of_vllm_on_a_cpu_are_refused() -> None:
    """It would start, and die with each request."""
    with pytest.raises(OptionError, match=r"pipeline_parallel_degree=2.*on the CPU.*tensor_par"):
        plan("option.pipeline_parallel_degree=2", TWELVE_HEADS, gpus=0)
