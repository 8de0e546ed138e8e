import pytest

from lmi_backend.options.hints import MEANINGS, closest
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import KEYS, live_keys

_RECORD = recorded_signature("vllm")
assert _RECORD
KNOWN = (*live_keys("vllm"), *(f"option.{name}" for name in _RECORD.arguments))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("max_modle_len", "option.max_model_len"),
        ("max_model_length", "option.max_model_len"),
        ("tensor-paralel-degree", "option.tensor_parallel_degree"),
        ("entry_point", "option.entryPoint"),
    ],
)
def test_a_slip_of_the_hand_is_set_right(word: str, meant: str) -> None:
    assert closest(f"option.{word}", KNOWN) == f"; did you mean {meant}?"


@pytest.mark.parametrize(
    "written", ["options.dtype", "option_dtype", "Option.dtype", "OPTION_DTYPE", "dtype", "DType"]
)
def test_the_beginning_of_a_key_is_no_part_of_its_name(written: str) -> None:
    assert closest(written, KNOWN) == "; did you mean option.dtype?"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("tp_size", "option.tensor_parallel_degree"),
        ("context_length", "option.max_model_len"),
        ("mem_fraction_static", "option.gpu_memory_utilization"),
        ("max_concurrent_requests", "job_queue_size"),
    ],
)
def test_another_servers_word_is_told_by_its_meaning(word: str, meant: str) -> None:
    assert closest(f"option.{word}", KNOWN) == f"; LMI's name for it is {meant}"


@pytest.mark.parametrize(
    "word",
    [
        "tp_sizes", "pp_degrees", "gpu_batch_size", "cpu_memory_utilization", "min_model_len",
        "batch_timeout", "keep_alive", "max_batch_delays_ms", "n_gpu_layers",
        "output_len", "decode_parallel_size", "x",
    ],
)  # fmt: skip
def test_a_word_that_means_another_thing_is_no_hint(word: str) -> None:
    assert closest(f"option.{word}", KNOWN) == ""


def test_every_meaning_is_an_option_and_no_word_is_one_of_vllms() -> None:
    names = {name for meant in MEANINGS.values() for name in meant}
    assert not [name for name in names if name not in KEYS and name not in KNOWN]
    plain = {name.removeprefix("option.").replace("_", "").lower(): name for name in KNOWN}
    # Of an option's own name, that option is meant.
    assert not {
        word: meant
        for word, meant in MEANINGS.items()
        if word in plain and plain[word] not in meant and plain[word] != f"option.{word}"
    }


def test_a_word_of_any_length_is_compared_at_once() -> None:
    assert closest("option." + "a" * 100_000, KNOWN) == ""
