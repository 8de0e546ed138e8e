from dataclasses import replace

from lmi_backend.printable import GIB
from lmi_backend.sizing.kv_layers import LocalAttention
from lmi_backend.sizing.model_facts import COMPUTED, Draft, ModelFacts, draft_model, mtp_layers
from tests.support.records.facts import with_fields
from tests.unit.sizing.test_memory import LLAMA_3_8B, estimate

MATRIX = 128256 * 4096 * 2
SMALL = with_fields(
    LLAMA_3_8B,
    num_layers=2,
    layers=2,
    num_kv_heads=4,
    values=1024,
    total=GIB,
)


def with_draft(draft: Draft) -> ModelFacts:
    return replace(LLAMA_3_8B, draft=draft)


def test_weights_and_cache_of_a_draft_model_are_beside_the_models() -> None:
    plain = estimate(LLAMA_3_8B)
    made = estimate(with_draft(draft_model(SMALL, "draft model m", shares_embeddings=False)))
    assert made.weights - plain.weights == GIB
    # Its pass comes after the model's, whose last hidden states it begins with.
    more = made.activations - plain.activations
    assert 0 < more < 4 * 8192 * 4096 * 2
    assert plain.kv_cache - made.kv_cache == GIB + more
    assert made.block_bytes - plain.block_bytes == 2 * 1024 * 2 * 16
    assert made.num_tokens < plain.num_tokens
    assert str(made.draft) == (
        "draft model m: counted: 1.0 GiB weights, the cache of 2 layer(s) and its steps"
    )


def test_it_is_split_as_the_model_is_and_lies_on_the_last_stage() -> None:
    facts = with_draft(draft_model(SMALL, "draft", shares_embeddings=False))
    split = estimate(facts, tensor=8)
    assert split.weights - estimate(LLAMA_3_8B, tensor=8).weights == GIB // 8
    # Each device of eight needs one of the four KV heads.
    assert split.block_bytes - estimate(LLAMA_3_8B, tensor=8).block_bytes == 2 * 256 * 2 * 16
    large = with_draft(replace(facts.draft or Draft(name=""), weight_bytes=20 * GIB))
    assert estimate(large, pipeline=2).weights > 20 * GIB


def test_an_eagle_uses_the_embeddings_of_the_model() -> None:
    computed = with_fields(SMALL, total=2 * MATRIX + 7, source=COMPUTED)
    assert draft_model(computed, "", shares_embeddings=True).weight_bytes == 7
    assert draft_model(computed, "", shares_embeddings=False).weight_bytes == 2 * MATRIX + 7
    # Its files have those that it has.
    assert draft_model(SMALL, "", shares_embeddings=True).weight_bytes == GIB


def test_what_is_stored_in_32_bits_is_served_in_16() -> None:
    assert draft_model(
        with_fields(SMALL, dtype="float32"), "", shares_embeddings=False
    ).weight_bytes == (GIB // 2)


def test_mtp_layers_are_of_the_models_kind() -> None:
    assert mtp_layers(LLAMA_3_8B) is None
    facts = with_fields(LLAMA_3_8B, num_mtp_layers=1)
    on_disk, computed = mtp_layers(facts), mtp_layers(with_fields(facts, source=COMPUTED))
    assert on_disk is not None
    assert computed is not None
    assert (on_disk.weight_bytes, on_disk.layers) == (0, 1)
    layer = (LLAMA_3_8B.weights.total - 2 * MATRIX) // 32
    assert computed.weight_bytes == layer + 2 * 4096 * 4096 * 2
    assert estimate(with_draft(on_disk)).block_bytes == estimate(LLAMA_3_8B).block_bytes // 32 * 33


def test_where_layers_are_of_several_kinds_its_cache_is_not_counted() -> None:
    windows = with_fields(LLAMA_3_8B, local=LocalAttention(layers=16, window=1024))
    draft = draft_model(SMALL, "draft", shares_embeddings=False)
    made, plain = estimate(replace(windows, draft=draft)), estimate(windows)
    assert made.block_bytes == plain.block_bytes
    assert (
        "counted: 1.0 GiB weights and its steps; not counted: its cache, as the model's own"
        in str(made.draft)
    )
