"""Fields of config.json, by the names of each family."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.sizing.model_facts import read_model_facts
from tests.support.records.published_logs import facts_of
from tests.unit.sizing.test_model_facts import LLAMA_3_8B


@pytest.mark.parametrize(
    "keys",
    [("text_config",), ("llm_config",), ("language_config",), ("thinker_config", "text_config")],
)
def test_the_language_model_of_a_multimodal_one_is_found(keys: tuple[str, ...]) -> None:
    nested: dict[str, Any] = {**LLAMA_3_8B, "torch_dtype": None}
    for key in reversed(keys):
        nested = {key: nested, "hidden_size": 1}
    outer = {"architectures": ["SeesForConditionalGeneration"], "torch_dtype": "float16"}
    facts = facts_of({**nested, **outer})
    assert (facts.shape.num_layers, facts.shape.hidden_size, facts.shape.dtype) == (
        32,
        4096,
        "float16",
    )
    assert facts.shape.architecture == "SeesForConditionalGeneration"


def test_what_a_file_lacks_its_class_has() -> None:
    """As Transformers 5.19 makes these of nothing, which has 9 billion numbers of 32 bits."""
    facts = facts_of({"model_type": "qwen3_5_text"})
    assert (facts.cache.layers, facts.cache.states.layers, facts.shape.num_kv_heads) == (8, 24, 4)
    assert facts.weights.total == pytest.approx(4 * 8_953_803_264, rel=0.001)
    assert set(facts.assumed) >= {"hidden_size", "num_hidden_layers", "vocab_size"}
    nested = facts_of({"model_type": "qwen3_5"})
    assert (nested.cache.layers, nested.assumed) == (8, ())
    assert nested.shape.vision_parameters > 0


def test_a_folder_without_a_config_has_no_facts(tmp_path: Path) -> None:
    assert read_model_facts(tmp_path) is None
    assert read_model_facts(tmp_path / "absent") is None


def changed(**fields: object) -> bytes:
    return json.dumps(LLAMA_3_8B | fields).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(num_hidden_layers=None), "num_hidden_layers is missing"),
        (changed(vocab_size=None), "vocab_size is missing"),
        (changed(num_hidden_layers=0), "num_hidden_layers=0 is not between"),
        (changed(hidden_size=-4096), "hidden_size=-4096 is not between"),
        (changed(vocab_size=1 << 60), f"vocab_size={1 << 60} is not between"),
        (changed(hidden_size=4096.5), "hidden_size=4096.5 is not a whole number"),
        (changed(num_attention_heads=True), "num_attention_heads=true is not a whole number"),
        (changed(num_key_value_heads=5), "num_key_value_heads=5 does not divide the 32 attention"),
        (changed(num_key_value_heads=None, n_head_kv=64), "n_head_kv=64 does not divide"),
        (changed(tie_word_embeddings="no"), 'tie_word_embeddings="no" is neither true nor false'),
        (changed(architectures="Llama"), 'architectures="Llama" is not a list of names'),
        (changed(kv_lora_rank=512), "qk_nope_head_dim is missing"),
        (changed(intermediate_size=["wide"]), 'intermediate_size="wide" is not a whole number'),
        (
            json.dumps({"text_config": LLAMA_3_8B | {"hidden_size": 0}}).encode(),
            "text_config.hidden_size=0 is not between",
        ),
        (b"{", "is not JSON"),
        (b"", "is not JSON"),
        (b'{"model_type": "\xff"}', "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_what_cannot_be_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(ConfigurationError) as caught:
        read_model_facts(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: {message}")
