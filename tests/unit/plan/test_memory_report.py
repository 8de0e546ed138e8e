"""The planned memory in vLLM's words."""

from dataclasses import replace

import pytest

from lmi_backend.plan.memory_report import memory_lines
from lmi_backend.printable import GIB
from lmi_backend.sizing.memory import CacheKind, MemoryEstimate, estimate_memory
from lmi_backend.sizing.step import Release, Step
from tests.support.facts import with_fields
from tests.unit.sizing.test_memory import LLAMA_3_8B

LLAMA_3_1 = with_fields(LLAMA_3_8B, max_position_embeddings=131_072)
H100 = int(79.19 * GIB)


def estimate(release: Release) -> MemoryEstimate:
    return estimate_memory(
        LLAMA_3_1,
        degrees=(1, 1),
        budget=int(H100 * 0.95),
        cache=CacheKind(dtype_bytes=2, length=16_384),
        step=Step(tokens=8192, sequences=1024, release=release),
    )


def test_it_reads_like_the_log_of_the_release() -> None:
    """vLLM 0.19 wrote 1.89 and 476,016 for these settings, and all else as it is here."""
    assert list(memory_lines(estimate((0, 19)), H100)) == [
        "Model loading took 14.99 GiB memory",
        "Total non KV cache memory: 17.12GiB; torch peak memory increase: 1.88GiB; non-torch "
        "forward increase memory: 0.25GiB; weights memory: 14.99GiB.",
        "Desired GPU memory utilization is (0.95, 75.23 GiB). Actual usage is 14.99 GiB for "
        "weight, 1.88 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.0 GiB for "
        "CUDAGraph memory.",
        "Available KV cache memory: 58.11 GiB",
        "GPU KV cache size: 476,000 tokens",
        "Maximum concurrency for 16,384 tokens per request: 29.05x",
    ]


def test_a_newer_release_has_other_words_and_deducts_more() -> None:
    lines = list(memory_lines(estimate((0, 32)), H100))
    assert lines[2] == "Estimated CUDA graph memory: 0.83 GiB total"
    assert "total consumed (from mem_get_info): 15.74GiB" in lines[1]
    assert "15.74 GiB for consumed memory (weights + non-torch), 0.89 GiB for peak" in lines[3]
    assert lines[-1].startswith("GPU KV cache size: 473,216 tokens, ")
    assert lines[-1].endswith("Maximum concurrency for 16,384 tokens per request: 28.88x")


@pytest.mark.parametrize(("release", "device"), [((0, 29), "GPU"), ((0, 30), "CPU")])
def test_on_a_cpu_only_the_cache_is_told(release: Release, device: str) -> None:
    lines = list(memory_lines(replace(estimate(release), kv_cache=GIB), 0))
    assert lines[0] == "Available KV cache memory: 1.0 GiB"
    assert lines[1].startswith(f"{device} KV cache size: 8,192 tokens, ")
    assert len(lines) == 2


def test_what_does_not_fit_has_no_size() -> None:
    lines = list(memory_lines(replace(estimate((0, 32)), kv_cache=-GIB), H100))
    assert lines[-1] == "Available KV cache memory: -1.0 GiB"
