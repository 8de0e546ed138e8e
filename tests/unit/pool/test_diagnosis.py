"""What users are told to change when a worker did not start. The words are the libraries' own."""

import pytest

from lmi_backend.options.table import KEYS
from lmi_backend.pool import diagnosis as causes

TOKENIZER = '  File "/p/transformers/tokenization_utils_base.py", line 1908, in _from_pretrained\n'


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to", "the GPU's memory is full"),
        ("No available memory for the cache blocks. Try", "option.gpu_memory_utilization"),
        ("which is larger than the available KV cache memory", "option.max_model_len"),
        ("Free memory on device cuda:0 (3.2/9 GiB) is less than desired", "another process uses"),
        ("Available memory on node 0 (1/2 GiB) is less than desired", "VLLM_CPU_KVCACHE_SPACE"),
        ("DefaultCPUAllocator: can't allocate memory: you tried", "the host's memory is full"),
        ("OSError: [Errno 28] No space left on device", "--shm-size"),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", "HF_TOKEN"),
        ("set the option `trust_remote_code=True` to remove this error.", "trust_remote_code"),
        ("SafetensorError: Error while deserializing header", "download it again"),
        ("HfHubHTTPError: Client error '401 Unauthorized' for url", "HF_TOKEN"),
        ("Model architectures ['Foo'] are not supported for now.", "architecture"),
        ("Available memory on node 0 (1/2 GiB) is less than requested", "VLLM_CPU_KVCACHE_SPACE"),
        ("RuntimeError: Cannot find any model weights with `/m`", "*.safetensors"),
        ("Error no file named model.safetensors found in directory /m.", "*.safetensors"),
        (
            "No such file or directory: '/m/model-2.safetensors'",
            "/m/model-2.safetensors is missing",
        ),
        ("The size of tensor a (256) must match the size of tensor b", "config.json and the"),
        ("Attempted to load weight (torch.Size([128])) into parameter", "config.json and the"),
        ("There is no module or parameter named 'model.foo' in Llama", "config.json and the"),
        ("Following weights were not initialized from checkpoint: {}", "config.json and the"),
        ("Couldn't instantiate the backend tokenizer from one of: \n", "has no tokenizer"),
        ("OSError: Can't load tokenizer for '/m'. If you were trying", "has no tokenizer"),
        (f"{TOKENIZER}json.decoder.JSONDecodeError: Expecting value", "is damaged"),
        (f"{TOKENIZER}KeyError: 'added_tokens'", "is damaged"),
        ("ValueError: Unknown RoPE scaling type spiral", "correct RoPE scaling type spiral"),
        ("Unsupported activation: sillu. Only silu is", "config.json: correct activation: sillu"),
        (
            "  Value error, Unknown quantization method: x. Must be",
            "correct quantization method: x",
        ),
        ("FieldValidationError: Validation error for field 'hidden_act':", "correct hidden_act"),
        ("PermissionError: [Errno 13] Permission denied: '/m/config.json'", "'/m/config.json'"),
        ("OSError: [Errno 30] Read-only file system: '/root/.cache'", "'/root/.cache'"),
        ("Error: I/O error Permission denied (os error 13)", "may not use a file or folder:"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota"),
        ("RuntimeError: Failed to infer device type", "sees no GPU"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:3", "NCCL"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC", "C++ compiler"),
        ("/usr/bin/ld: cannot find -ltorch: No such file or directory", "path with a blank"),
        ("g++: fatal error: input file '/t' is the same as output file", "another TMPDIR"),
        ("Could not find nvcc and default cuda_home='/usr/local/cuda'", "nvcc"),
        ("No working C++ compiler found in torch._inductor.config.cpp", "C++ compiler"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "ninja"),
        ("packages that were not found in your environment: a, b. Run `pip", "needs a, b:"),
        ("ModuleNotFoundError: No module named 'einops'", "lacks einops:"),
        ("Tokenizer requires the SentencePiece library but it was not found", "lacks Sentence"),
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
