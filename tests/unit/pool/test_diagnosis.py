"""What users are told to change when a worker did not start. The words are the libraries' own."""

import pytest

from lmi_backend.options.table import KEYS
from lmi_backend.pool import diagnosis as causes


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "the GPU's memory is full",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine.",
            "option.gpu_memory_utilization",
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (131072), "
            "16.0 GiB KV cache is needed, which is larger than the available KV cache memory",
            "option.max_model_len",
        ),
        (
            "ValueError: Free memory on device cuda:0 (3.2/79.1 GiB) on startup is less than "
            "desired GPU memory utilization (0.9, 71.2 GiB).",
            "another process uses the GPU",
        ),
        (
            "ValueError: Available memory on node 0 (19.01/23.54 GiB) on startup is less than "
            "desired CPU memory utilization (0.92, 21.66 GiB).",
            "VLLM_CPU_KVCACHE_SPACE",
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't "
            "allocate memory: you tried to allocate 137438953472 bytes.",
            "the host's memory is full",
        ),
        ("OSError: [Errno 28] No space left on device", "--shm-size"),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", "HF_TOKEN"),
        ("set the option `trust_remote_code=True` to remove this error.", "trust_remote_code"),
    ],
)
def test_the_last_words_tell_the_cause(words: str, advice: str) -> None:
    assert advice in causes.likely_cause(f"line\n{words}\nline")


def test_the_kernel_tells_whether_memory_was_why_a_process_was_killed() -> None:
    assert "the host's memory is full" in causes.likely_cause("", memory_kills=1)
    assert not causes.likely_cause("", memory_kills=0)


def test_an_error_that_refers_to_another_is_told_with_it() -> None:
    """vLLM 0.32: its core's traceback, then its server's."""
    text = "RuntimeError: Engine core initialization failed. See root cause above. Failed: {}"
    lines = (
        "(EngineCore pid=2) ERROR [core.py:1510] KeyError: 'first'\n"
        "(EngineCore pid=2) ERROR [core.py:1510] safetensors_rust.SafetensorError: cut short\n"
        f"  a line of it\n{text}\n"
    )
    message = causes.with_root_cause(text, lines)
    assert message == (
        "RuntimeError: Engine core initialization failed. "
        "Root cause: safetensors_rust.SafetensorError: cut short"
    )
    assert causes.with_root_cause(text, f"a line\n{text}") == text
    assert causes.with_root_cause("KeyError: 'a'", lines) == "KeyError: 'a'"


def test_nothing_is_made_up() -> None:
    assert not causes.likely_cause("KeyError: 'weights'")


def test_the_options_named_exist() -> None:
    named = {
        word.strip(",.:()").partition("=")[0]
        for _, advice in causes._CAUSES
        for word in advice.split()
        if word.startswith("option.")
    }
    assert named
    assert named <= KEYS.keys()
