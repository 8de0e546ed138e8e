"""Prompts and chats, as all engines with a tokenizer read them."""

import threading
from typing import Any

import pytest

from lmi_backend.engines.tokens import chat_ids, encoder, longest_token, prompt_ids
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling


def _encode(text: str) -> list[int]:
    return [len(word) for word in text.split()]


async def test_text_is_refused_where_there_is_no_tokenizer() -> None:
    encode = encoder(None)
    assert await prompt_ids(GenerateRequest((7, 8)), encode, max_model_len=8) == [7, 8]
    with pytest.raises(RequestError, match="prompt is text, and the model has no tokenizer"):
        await prompt_ids(GenerateRequest("a"), encode, max_model_len=8)


@pytest.mark.parametrize(
    ("request_", "encoded"),
    [
        (GenerateRequest("a bb ccc " * 1000, Sampling(truncate_prompt_tokens=2)), "bb ccc "),
        (GenerateRequest("a bb", Sampling(truncate_prompt_tokens=9)), "a bb"),
        (GenerateRequest("a" * 24), "a" * 24),
    ],
)
async def test_only_as_much_text_is_encoded_as_can_fit(
    request_: GenerateRequest, encoded: str
) -> None:
    seen: list[str] = []

    def encode(text: str) -> list[int]:
        seen.append(text)
        return _encode(text)

    ids = await prompt_ids(request_, encode, max_model_len=8, longest=3)
    (text,) = seen
    assert text.endswith(encoded)
    assert len(text) <= max(9, len(encoded))
    assert ids == _encode(encoded)


async def test_a_text_that_cannot_fit_is_not_encoded() -> None:
    def encode(text: str) -> list[int]:
        raise AssertionError

    accepted = r"has 25 characters; accepted: at most 24: 8 tokens of at most 3 each\. "
    accepted += "This model's maximum context length is 8 tokens$"
    with pytest.raises(RequestError, match=f"prompt {accepted}"):
        await prompt_ids(GenerateRequest("a" * 25), encode, max_model_len=8, longest=3)
    messages = [{"role": "user", "content": "a" * 12}, {"role": "user", "content": "a" * 13}]
    with pytest.raises(RequestError, match=f"messages {accepted}"):
        chat_ids(None, messages, {}, max_model_len=8, longest=3)


def test_the_longest_token_is_asked_of_the_tokenizer() -> None:
    class Tokenizer:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 0, "ccc": 1, "bb": 2}

    assert longest_token(Tokenizer()) == 3
    assert longest_token(object()) == 0


async def test_a_long_text_does_not_keep_the_event_loop() -> None:
    threads = []

    def encode(text: str) -> list[int]:
        threads.append(threading.current_thread())
        return [1]

    for size in (10, 5000):
        await prompt_ids(GenerateRequest("a" * size), encode, max_model_len=8)
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()


@pytest.mark.parametrize(
    ("request_", "sizes", "text"),
    [
        (
            GenerateRequest("a b"),
            {},
            "has 2 tokens; accepted: at least one, fewer than 2, to leave",
        ),
        (GenerateRequest(""), {}, "has 0 tokens; accepted: at least one, fewer than 2"),
        (GenerateRequest(""), {"max_model_len": 0}, "has 0 tokens; accepted: at least one$"),
        (GenerateRequest("a b"), {"min_tokens": 0}, "has 2 tokens; accepted: fewer than 2, to"),
        (GenerateRequest((5,)), {"vocabulary": 5}, "has token id 5; accepted: 0 to 4"),
        (GenerateRequest((-1,)), {"vocabulary": 5}, "has token id -1"),
        (GenerateRequest("a", images=(b"",)), {}, "image is given, but this engine takes text"),
    ],
)
async def test_a_prompt_that_does_not_fit_is_refused(
    request_: GenerateRequest, sizes: dict[str, Any], text: str
) -> None:
    with pytest.raises(RequestError, match=text):
        await prompt_ids(request_, _encode, **{"max_model_len": 2} | sizes)
