"""Why a worker did not start, as far as its last lines tell, and what to change."""

from __future__ import annotations

import re
from typing import Final

_LESS_MEMORY: Final = (
    "lower option.max_model_len, option.max_rolling_batch_size or "
    "option.max_rolling_batch_prefill_tokens, raise option.tensor_parallel_degree, or quantise the "
    "model (option.quantize)"
)
_CAUSES: Final = (
    (
        r"No available memory for the cache blocks|larger than the available KV cache memory"
        r"|larger than the maximum number of tokens that can be stored",
        "the KV cache does not fit: lower option.max_model_len, raise "
        "option.gpu_memory_utilization, or raise option.tensor_parallel_degree",
    ),
    (
        r"Free memory on device .* is less than desired",
        "another process uses the GPU: stop it, or lower option.gpu_memory_utilization",
    ),
    (
        r"Available memory on node .* is less than desired",
        "other processes use the host's memory: stop them, lower option.gpu_memory_utilization, or "
        "set VLLM_CPU_KVCACHE_SPACE",
    ),
    (
        r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
        r"|HIP out of memory",
        f"the GPU's memory is full: {_LESS_MEMORY}",
    ),
    (
        r"DefaultCPUAllocator: can't allocate|MemoryError|Cannot allocate memory"
        r"|std::bad_alloc",
        f"the host's memory is full: {_LESS_MEMORY}",
    ),
    (
        r"No space left on device|unable to .* shared memory|Bus error",
        "a disk or /dev/shm is full: give the container more shared memory (docker --shm-size), "
        "or make room where HF_HOME is",
    ),
    (
        r"SafetensorError|MetadataIncompleteBuffer|PytorchStreamReader failed",
        "a file of weights is cut short or damaged: remove it, and download it again",
    ),
    (
        r"401 Unauthorized|Invalid user token|Invalid username or password",
        "the Hub does not know the token: check HF_TOKEN",
    ),
    (
        r"are not supported for now|does not recognize this architecture"
        r"|no vLLM implementation and the Transformers implementation",
        "this release of the engine does not know the model's architecture: use a newer release, "
        "or another engine (option.rolling_batch)",
    ),
    (
        r"GatedRepoError|401 Client Error|403 Client Error|is a gated repo",
        "the hub refuses the model: accept its licence there, and set HF_TOKEN",
    ),
    (
        r"RepositoryNotFoundError|is not a valid model identifier|LocalEntryNotFoundError",
        "there is no such model: check option.model_id, and that the hub can be reached",
    ),
    (
        r"trust_remote_code=True",
        "the model brings code of its own: if you trust it, set option.trust_remote_code=true",
    ),
    (
        r"Address already in use|EADDRINUSE",
        "a port is in use: stop what is left of another worker",
    ),
    (
        r"no kernel image is available|CUDA driver version is insufficient",
        "the GPU or its driver does not fit the engine's CUDA build",
    ),
)


_ABOVE: Final = "See root cause above"
_EXCEPTION: Final = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.MULTILINE)


def with_root_cause(text: str, lines: str) -> str:
    """Return an engine's error with what it refers to in the engine's lines."""
    start, above, _ = text.partition(_ABOVE)
    found = [each[1] for each in _EXCEPTION.finditer(lines) if _ABOVE not in each[1]]
    return f"{start}Root cause: {found[-1]}" if above and found else text


def likely_cause(lines: str, *, memory_kills: int = 0) -> str:
    """Return what most likely went wrong and what to do, or an empty text.

    Args:
        lines: what the worker last said.
        memory_kills: processes that the kernel has killed meanwhile for want of memory.
    """
    for pattern, advice in _CAUSES:
        if re.search(pattern, lines):
            return advice
    if memory_kills:
        return f"the kernel killed a process because the host's memory is full: {_LESS_MEMORY}"
    return ""
