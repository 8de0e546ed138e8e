"""Texts to token ids and back, for the models of TensorRT-LLM's clients around an engine."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from lmi_backend.engines.prompts import check_characters
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.structures import DEFAULT_BOUNDS
from lmi_backend.tokenization import ENCODE_PATH, Encoded, Texts, TokenIds

_JSON: Final = {"content-type": "application/json"}


async def answer_tokens(
    request: HttpRequest, tokenizer: Any, *, max_model_len: int, longest: int
) -> HttpChunk:
    """Answer one of `TOKEN_PATHS`; what is wrong with the request is an answer too.

    Args:
        tokenizer: of Hugging Face's form.
        max_model_len, longest: see `prompts.prompt_ids`.
    """
    try:
        if request.path == ENCODE_PATH:
            texts = msgspec.json.decode(request.body, type=Texts)
            check_characters(len(texts.text), max_model_len, longest, field="QUERY")
            _check_words(texts, max_model_len, longest)
            said: Any = await asyncio.to_thread(_encode, texts, tokenizer)
        else:
            ids = msgspec.json.decode(request.body, type=TokenIds).ids
            _check(ids, tokenizer)
            said = await asyncio.to_thread(tokenizer.decode, ids, skip_special_tokens=True)
    except RequestError as error:
        return HttpChunk(str(error).encode(), is_last=True, status=400)
    return HttpChunk(msgspec.json.encode(said), is_last=True, headers=_JSON)


def _check_words(texts: Texts, max_model_len: int, longest: int) -> None:
    for name, words in (("BAD_WORDS_DICT", texts.bad), ("STOP_WORDS_DICT", texts.stop)):
        if len(words) > DEFAULT_BOUNDS.choices:
            accepted = f"at most {DEFAULT_BOUNDS.choices}"
            raise RequestError(f"has {len(words)} words", field=name, accepted=accepted)
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
