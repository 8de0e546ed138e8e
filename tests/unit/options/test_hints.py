import pytest

from lmi_backend.options.hints import MEANINGS, closest
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import KEYS, live_keys

_RECORD = recorded_signature("vllm")
assert _RECORD
KNOWN = (*live_keys("vllm"), *(f"option.{name}" for name in _RECORD.arguments))


MEANT, NAMED = "; did you mean option.{}?", "; LMI's name for it is {}"
WITH_BEGINNINGS = "options.dtype option_dtype Option.dtype OPTION_DTYPE dtype DType"
OTHER_THINGS = """
    tp_sizes pp_degrees gpu_batch_size cpu_memory_utilization min_model_len batch_timeout keep_alive
    max_batch_delays_ms n_gpu_layers output_len decode_parallel_size x
"""


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        # A slip of the hand.
        ("option.max_modle_len", MEANT.format("max_model_len")),
        ("option.max_model_length", MEANT.format("max_model_len")),
        ("option.tensor-paralel-degree", MEANT.format("tensor_parallel_degree")),
        ("option.entry_point", MEANT.format("entryPoint")),
        # The beginning of a key is no part of its name.
        *((each, MEANT.format("dtype")) for each in WITH_BEGINNINGS.split()),
        # Another server's word is told by its meaning.
        ("option.tp_size", NAMED.format("option.tensor_parallel_degree")),
        ("option.context_length", NAMED.format("option.max_model_len")),
        ("option.mem_fraction_static", NAMED.format("option.gpu_memory_utilization")),
        ("option.max_concurrent_requests", NAMED.format("job_queue_size")),
        # A word that means another thing is no hint.
        *((f"option.{each}", "") for each in OTHER_THINGS.split()),
    ],
)
def test_a_hint_is_what_was_meant(written: str, hint: str) -> None:
    assert closest(written, KNOWN) == hint


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
