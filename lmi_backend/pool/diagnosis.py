"""Why a worker did not start, as far as its last lines tell, and what to change."""

from __future__ import annotations

import re
from typing import Final

_LESS_MEMORY: Final = (
    "lower option.max_model_len, option.max_rolling_batch_size or "
    "option.max_rolling_batch_prefill_tokens, raise option.tensor_parallel_degree, or quantise the "
    "model (option.quantize)"
)
# The last frame of a traceback that is of a tokenizer, and JSON's below it.
_IN_TOKENIZER: Final = r'File "[^"\n]*tokeniz[^"\n]*", line .*\n(?:.*\n){0,16}?.*\b'
CAUSES: Final = (
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
        r"Available memory on node .* is less than (?:desired|requested)",
        "the host has less memory free: stop other processes, lower option.gpu_memory_utilization, "
        "or lower VLLM_CPU_KVCACHE_SPACE",
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
        r"Disk quota exceeded|os error 122",
        "this user's disk quota is used up: make room, or set HF_HOME to a folder on another disk",
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
        r"Cannot find any model weights|[Nn]o file named [\w.]+.* found in directory"
        r"|does not appear to have (?:a|any) files? named \S*(?:safetensors|bin)",
        "the model's folder has no weights: put its *.safetensors there, or correct "
        "option.model_id",
    ),
    (
        r"No such file or directory: '?(?P<file>[^'\n]*\.(?:safetensors|bin|pt|gguf))",
        "\\g<file> is missing: download the model again",
    ),
    (
        r"size of tensor a .* must match the size of tensor b|size mismatch for \S+"
        r"|Attempted to load weight .* into parameter|ignore_mismatched_sizes"
        r"|exceeds dimension size|shape '.*' is invalid for input of size"
        r"|There is no module or parameter named|weights were not initialized from checkpoint"
        r"|expand\(.*the number of sizes|loaded_weight\.(?:shape|size\(\)) ==",
        "config.json and the weights are of different models: take both from one release",
    ),
    (
        r"Couldn't instantiate the backend tokenizer|Can't load tokenizer for"
        r"|Unable to load vocabulary from file",
        "the model's folder has no tokenizer that can be loaded: put its tokenizer.json and "
        "tokenizer_config.json there",
    ),
    (
        rf"{_IN_TOKENIZER}(?:JSONDecodeError|KeyError|UnicodeDecodeError|TypeError|Exception):"
        r"|untagged enum ModelWrapper",
        "tokenizer.json or tokenizer_config.json in the model's folder is damaged: download them "
        "again",
    ),
    (
        r"Unknown (?P<field>(?:RoPE scaling type|quantization method):? [\w-]+)"
        r"|Unsupported (?P<word>activation: \w+)|Validation error for field '(?P<name>\w+)'",
        "the engine does not take a value of config.json: correct \\g<field>\\g<word>\\g<name>, or "
        "use a newer release of the engine",
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
    (
        r"Failed to infer device type|Found no NVIDIA driver|libcuda\.so\.1: cannot open shared",
        "the engine sees no GPU: start the container with --gpus all, or install the driver",
    ),
    (
        r"NCCL error|DistBackendError|nccl\w+Error",
        "the GPUs do not reach each other: give the container more shared memory (docker "
        "--shm-size), and set NCCL_DEBUG=INFO to have the reason in the log",
    ),
    (
        r"Failed to find C compiler|No working C\+\+ compiler|Could not find nvcc"
        r"|CUDA_HOME environment variable is not set|nvcc: not found|Ninja is required"
        r"|No such file or directory: '\S*(?:nvcc|ninja|gcc|g\+\+|clang)'|Python\.h: No such file",
        "the engine compiles kernels, and has nothing to do it with: install a C++ compiler, "
        "Python's headers, ninja and CUDA's nvcc, or set option.enforce_eager=true",
    ),
    (
        r"cannot find -ltorch|g\+\+: fatal error: input file .* is the same as output file",
        "torch compiles below no path with a blank: move the engine, or set another TMPDIR",
    ),
    (
        r"(?:Read-only file system|os error 30\)|Permission denied|os error 13\))"
        r"(?::(?P<file> '[^'\n]+'))?",
        "the engine's user may not use a file or folder\\g<file>: change its owner or its mode, "
        "mount it writable, or set HF_HOME and XDG_CACHE_HOME to folders that can be written",
    ),
    (
        r"packages that were not found in your environment: (?P<names>[\w, .-]+?)\. Run",
        "the model's code needs \\g<names>: install that for the engine's Python",
    ),
    (
        r"requires the (?P<name>\S+) library but it was not found"
        r"|(?:ModuleNotFoundError|ImportError): No module named '(?P<module>[\w.]+)'",
        "the engine's Python lacks \\g<name>\\g<module>: install it there "
        "(option.pythonExecutable names that Python)",
    ),
)


_ABOVE: Final = "See root cause above"
_EXCEPTION: Final = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.MULTILINE)


def with_root_cause(text: str, lines: str) -> str:
    """Return an engine's error with what it refers to in the engine's lines."""
    start, above, _ = text.partition(_ABOVE)
    exceptions = [each[1] for each in _EXCEPTION.finditer(lines) if _ABOVE not in each[1]]
    return f"{start}Root cause: {exceptions[-1]}" if above and exceptions else text


def likely_cause(lines: str, *, memory_kills: int = 0) -> str:
    """Return what most likely went wrong and what to do, or an empty text."""
    for pattern, advice in CAUSES:
        if match := re.search(pattern, lines):
            return match.expand(advice)
    if memory_kills:
        return f"the kernel killed a process because the host's memory is full: {_LESS_MEMORY}"
    return ""
