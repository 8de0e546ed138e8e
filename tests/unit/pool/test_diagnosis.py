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
        ("safetensors_rust.SafetensorError: Error while deserializing header", "download it again"),
        ("HfHubHTTPError: Client error '401 Unauthorized' for url", "HF_TOKEN"),
        ("Model architectures ['Foo'] are not supported for now.", "architecture"),
        (
            "ValueError: Available memory on node 0 (8.16/23.54 GiB) on kv cache allocation is "
            "less than requested memory for kv (400.0 GiB).",
            "VLLM_CPU_KVCACHE_SPACE",
        ),
        ("RuntimeError: Cannot find any model weights with `/m`", "*.safetensors"),
        (
            "OSError: Error no file named model.safetensors found in directory /m.",
            "*.safetensors",
        ),
        (
            "FileNotFoundError: No such file or directory: '/m/model-00002-of-00002.safetensors'",
            "/m/model-00002-of-00002.safetensors is missing",
        ),
        (
            "RuntimeError: The size of tensor a (256) must match the size of tensor b (128) at "
            "non-singleton dimension 1",
            "config.json and the weights",
        ),
        (
            "AssertionError: Attempted to load weight (torch.Size([128])) into parameter "
            "(torch.Size([256]))",
            "config.json and the weights",
        ),
        (
            "ValueError: There is no module or parameter named 'model.foo' in LlamaForCausalLM.",
            "config.json and the weights",
        ),
        (
            "ValueError: Following weights were not initialized from checkpoint: {'lm_head'}",
            "config.json and the weights",
        ),
        (
            "ValueError: Couldn't instantiate the backend tokenizer from one of: \n(1) a "
            "`tokenizers` library serialization file",
            "has no tokenizer",
        ),
        ("OSError: Can't load tokenizer for '/m'. If you were trying", "has no tokenizer"),
        (
            '  File "/p/transformers/tokenization_utils_base.py", line 1908, in _from_pretrained\n'
            "    tokenizer_file_handle = json.load(handle)\n"
            '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n'
            '    raise JSONDecodeError("Expecting value", s, err.value) from None\n'
            "json.decoder.JSONDecodeError: Expecting value: line 11 column 17 (char 197)",
            "tokenizer.json or tokenizer_config.json in the model's folder is damaged",
        ),
        (
            '  File "/p/transformers/tokenization_utils_base.py", line 1910, in _from_pretrained\n'
            '    added_tokens = tokenizer_file_handle.pop("added_tokens")\n'
            "KeyError: 'added_tokens'",
            "is damaged",
        ),
        ("PermissionError: [Errno 13] Permission denied: '/m/config.json'", "'/m/config.json'"),
        ("OSError: [Errno 30] Read-only file system: '/root/.cache'", "'/root/.cache'"),
        ("Error: I/O error Permission denied (os error 13)", "may not use a file or folder:"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota"),
        ("RuntimeError: Failed to infer device type", "sees no GPU"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:3, ncclSystemError", "NCCL"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC", "C++ compiler"),
        (
            "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't "
            "exist",
            "nvcc",
        ),
        (
            "InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: "
            "(None, 'g++')",
            "C++ compiler",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "ninja"),
        (
            "ImportError: This modeling file requires the following packages that were not found "
            "in your environment: einops, flash_attn. Run `pip install einops flash_attn`",
            "needs einops, flash_attn:",
        ),
        ("ModuleNotFoundError: No module named 'einops'", "lacks einops:"),
        (
            "LlamaTokenizer requires the SentencePiece library but it was not found in your "
            "environment.",
            "lacks SentencePiece:",
        ),
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
        for _, advice in causes.CAUSES
        for word in advice.split()
        if word.startswith("option.")
    }
    assert named
    assert named <= KEYS.keys()
