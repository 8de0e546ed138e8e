"""The text of a token is decoded once, and is what vLLM's function says each time."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import names, token_texts
from lmi_backend.engines.vllm.inside.token_texts import TokenTexts


class Decoded:
    """vLLM's function, which decodes each token by itself."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def __call__(self, tokenizer: Any, token_ids: list[int], *_: Any) -> list[str]:
        self.ids += token_ids
        return [f"{tokenizer} {token}" for token in token_ids]


def test_a_text_is_decoded_once_and_each_list_is_new() -> None:
    decoded = Decoded()
    texts = TokenTexts(decoded, vocabulary=10)
    texts("a", [1, 2])
    decoded.ids.clear()
    for ids in ([1, 2], [2], [2, 1]):
        made = texts("a", ids)
        assert made == [f"a {token}" for token in ids]
        # As vLLM does to a part of a character.
        made[0] = "changed"
    assert decoded.ids == []


@pytest.mark.parametrize("given", [("b", [1]), ("a", [1], "more")])
def test_what_it_does_not_know_is_vllms(given: tuple[Any, ...]) -> None:
    decoded = Decoded()
    texts = TokenTexts(decoded, vocabulary=10)
    texts("a", [1])
    decoded.ids.clear()
    assert [texts(*given) for _ in range(2)] == [[f"{given[0]} 1"]] * 2
    assert decoded.ids == [1, 1]


def test_it_keeps_no_more_texts_than_the_vocabulary_has() -> None:
    decoded = Decoded()
    texts = TokenTexts(decoded, vocabulary=3)
    every = list(range(9))
    for _ in range(2):
        assert texts("a", every) == [f"a {token}" for token in every]
    assert len(texts._known) == 3


def _module(monkeypatch: pytest.MonkeyPatch, decode: Any) -> Any:
    module = SimpleNamespace(convert_ids_list_to_tokens=decode)
    monkeypatch.setitem(names.__dict__, "logprobs", module)
    return module


TOKENIZER = SimpleNamespace(encode=lambda text: [ord(letter) for letter in text])


def test_an_engine_after_another_in_a_process_has_texts_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = Decoded()
    module = _module(monkeypatch, decoded)
    for _ in range(2):
        token_texts.attach(TOKENIZER, 300)
    assert module.convert_ids_list_to_tokens.decode is decoded


def test_texts_that_vllm_calls_for_no_longer_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _module(monkeypatch, Decoded())
    assert not token_texts.is_unused()  # there are none
    token_texts.attach(TOKENIZER, 300)
    assert token_texts.is_unused()
    module.convert_ids_list_to_tokens(TOKENIZER, [1])
    assert not token_texts.is_unused()


def test_a_text_that_depends_on_its_neighbours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def together(tokenizer: Any, token_ids: list[int]) -> list[str]:
        return [f"{place} {token}" for place, token in enumerate(token_ids)]

    module = _module(monkeypatch, together)
    with pytest.raises(ValueError, match="and not"):
        token_texts.attach(TOKENIZER, 300)
    assert module.convert_ids_list_to_tokens is together
