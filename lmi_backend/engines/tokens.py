"""Texts to token ids and back, for clients that want no more from an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from lmi_backend.clients.openai_bodies import read_chat
from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.structures import DEFAULT_BOUNDS
from lmi_backend.tokenization import (
    ENCODE_PATH,
    SPANS_PATH,
    Encoded,
    Span,
    Spanning,
    Spans,
    Texts,
    TokenIds,
    check_characters,
)

_NO_TOKENIZER: Final = b"the model has no tokenizer"
_JSON: Final = {"content-type": "application/json"}

ChatIds = Callable[[dict[str, Any]], Awaitable[list[int]]]
"""Returns the token ids of OpenAI's body of a chat; raises RequestError or HttpError."""


async def answer_tokens(
    request: HttpRequest, tokenizer: Any, *, max_model_len: int, longest: int, chat_ids: ChatIds
) -> HttpChunk:
    """Answer one of `TOKEN_PATHS`; what is wrong with the request is an answer too.

    Args:
        tokenizer: one of Hugging Face's; None if the model has none.
        max_model_len, longest: see `prompts.prompt_ids`.
        chat_ids: as the engine makes them.
    """
    if tokenizer is None:
        return HttpChunk(_NO_TOKENIZER, is_last=True, status=HTTPStatus.NOT_FOUND)
    try:
        if request.path == ENCODE_PATH:
            texts = msgspec.json.decode(request.body, type=Texts)
            check_characters(len(texts.text), max_model_len, longest, field="QUERY")
            _check_words(texts, max_model_len, longest)
            answer: Any = await asyncio.to_thread(_encode, texts, tokenizer)
        elif request.path == SPANS_PATH:
            asked = msgspec.json.decode(request.body, type=Spanning)
            check_characters(len(asked.text), max_model_len, longest, field="inputs")
            ids = await chat_ids(asked.chat) if asked.chat is not None else None
            answer = await asyncio.to_thread(_spans, asked, ids, tokenizer)
        else:
            ids = msgspec.json.decode(request.body, type=TokenIds).ids
            _check(ids, tokenizer)
            answer = await asyncio.to_thread(tokenizer.decode, ids, skip_special_tokens=True)
    except RequestError as error:
        return HttpChunk(str(error).encode(), is_last=True, status=HTTPStatus.BAD_REQUEST)
    except HttpError as error:
        return HttpChunk(str(error).encode(), is_last=True, status=error.status)
    return HttpChunk(msgspec.json.encode(answer), is_last=True, headers=_JSON)


def by_template(
    chat_prompt: Callable[[list[dict[str, Any]], dict[str, Any]], Awaitable[list[int]]],
) -> ChatIds:
    """Return what makes the ids of a body as `TemplateEngine.chat_prompt` makes them of a chat."""

    async def chat_ids(body: dict[str, Any]) -> list[int]:
        read = read_chat(body)
        return await chat_prompt(read.messages, read.template_options)

    return chat_ids


def _spans(asked: Spanning, ids: list[int] | None, tokenizer: Any) -> Spans:
    """Return the tokens of a text, or of a chat whose ids are given."""
    if not getattr(tokenizer, "is_fast", False):
        raise HttpError(HTTPStatus.NOT_FOUND, "the model has no fast tokenizer, which tells places")
    if ids is None:
        return Spans(asked.text, _placed(asked.text, tokenizer, special=asked.special))
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    tokens = _placed(text, tokenizer, special=False)
    # Some tokenizers do not make the same ids of their own text.
    return Spans(text, tokens if [each.id for each in tokens] == ids else [*map(Span, ids)])


def _placed(text: str, tokenizer: Any, *, special: bool) -> list[Span]:
    encoded = tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
    return [
        Span(number, text[start:stop], start, stop)
        for number, (start, stop) in zip(
            encoded["input_ids"], encoded["offset_mapping"], strict=True
        )
    ]


def _check_words(texts: Texts, max_model_len: int, longest: int) -> None:
    for name, words in (("BAD_WORDS_DICT", texts.bad), ("STOP_WORDS_DICT", texts.stop)):
        if len(words) > DEFAULT_BOUNDS.choices:
            accepted = f"at most {DEFAULT_BOUNDS.choices}"
            raise RequestError(f"has {len(words)} entries", field=name, accepted=accepted)
        check_characters(sum(map(len, words)), max_model_len, longest, field=name)


def _encode(texts: Texts, tokenizer: Any) -> Encoded:
    words = [
        [list(tokenizer.encode(word, add_special_tokens=False)) for word in each]
        for each in (texts.bad, texts.stop)
    ]
    end = getattr(tokenizer, "eos_token_id", None)
    pad = getattr(tokenizer, "pad_token_id", None)
    return Encoded(
        ids=list(tokenizer.encode(texts.text)),
        bad=words[0],
        stop=words[1],
        end_id=-1 if end is None else end,
        pad_id=(-1 if end is None else end) if pad is None else pad,
    )


def _check(ids: list[int], tokenizer: Any) -> None:
    """Raise for an id without a token: some tokenizers end the process at one."""
    size = len(tokenizer)
    if unknown := [number for number in ids if not 0 <= number < size]:
        accepted = f"0 to {size - 1}"
        raise RequestError("is unknown", field="TOKENS_BATCH", value=unknown[0], accepted=accepted)
