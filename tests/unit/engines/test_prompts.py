"""From a prompt to token ids."""

import threading
from typing import Any

import pytest

from lmi_backend.engines.prompts import prompt_ids
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling


def _encode(text: str) -> list[int]:
    return [len(word) for word in text.split()]


async def test_text_is_encoded_and_ids_are_taken_as_they_are() -> None:
    assert await prompt_ids(GenerateRequest("a bb"), _encode, max_model_len=8) == [1, 2]
    assert await prompt_ids(GenerateRequest((7, 8)), _encode, max_model_len=8) == [7, 8]


async def test_a_prompt_is_cut_from_the_left() -> None:
    request = GenerateRequest("a bb ccc", Sampling(truncate_prompt_tokens=2))
    assert await prompt_ids(request, _encode, max_model_len=3) == [2, 3]


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
