"""What becomes of keys that are in no table."""

from dataclasses import replace

import pytest

from lmi_backend.options import classification
from lmi_backend.options.signature import Signature, recorded_signature
from tests.support.records.plans import options_of


def word_of(name: str, text: str, engine: str = "vllm") -> str:
    properties = f"option.model_id=org/m\noption.rolling_batch={engine}\noption.{name}={text}"
    return classification.classify_unknown(options_of(properties), "")[name].word


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("seed", "1", "passed"),
        ("seed", "x", "refused"),
        ("disable_log_stats", "true", "passed"),
        ("disable_log_stats", "nope", "refused"),
        ("scheduling_policy", "priority", "passed"),
        ("scheduling_policy", "x", "refused"),
        ("max_modle_len", "1", "refused"),
        # A newer release may have it, with any value.
        ("wholly_novel", "x", "passed"),
        # Arguments of the listener, which is not started.
        ("port", "1", "ignored"),
        ("api_key", "x", "refused"),
        ("ssl_keyfile", "x", "refused"),
    ],
)
def test_a_passed_argument_needs_a_text_of_its_type(name: str, text: str, word: str) -> None:
    assert word_of(name, text) == word


def test_an_engine_without_flags_reads_the_text_itself() -> None:
    assert word_of("wholly_novel", "x", "trtllm") == "passed"


@pytest.mark.parametrize(("text", "word"), [("true", "passed"), ("x", "refused")])
def test_the_opposite_of_a_flag_is_true_or_false(
    text: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def known(*_: object) -> Signature:
        recorded = recorded_signature("vllm")
        assert recorded
        return replace(recorded, opposites={**recorded.opposites, "disable_seed": "seed"})

    monkeypatch.setattr(classification, "signature_of", known)
    assert word_of("disable_seed", text) == word
