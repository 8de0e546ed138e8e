"""From a prompt or a chat to token ids and back, as all engines with a tokenizer do it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from lmi_backend.clients.openai_bodies import read_chat
from lmi_backend.engines.protocol import Engine
from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import GenerateRequest, HttpChunk, HttpRequest
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
    context_length,
)

_LONG_PROMPT: Final = 4096
"""Characters above which a prompt is tokenised in a thread; below, the hop costs more."""
_FROM_A_CLIENT: Final = frozenset({"add_generation_prompt", "continue_final_message", "documents"})
"""Arguments of `apply_chat_template` that a body may give. A name that is none of its arguments is
a variable of the template."""


async def prompt_ids(
    request: GenerateRequest,
    encode: Callable[[str], Sequence[int]],
    *,
    max_model_len: int,
    vocabulary: int = 0,
    min_tokens: int = 1,
    longest: int = 0,
) -> list[int]:
    """Return the token ids of a prompt, cut from the left where the request says so.

    Args:
        encode: turns text into token ids.
        max_model_len: longest prompt plus answer, in tokens; 0 if it is not known.
        vocabulary: ids of a client's own must be below it; 0 if it is not known.
        min_tokens: shortest prompt.
        longest: characters of the longest token; 0 if it is not known. Text that cannot fit is not
            turned into tokens, which takes a core a second for 2 MB, and of text that is to be cut
            only the end is.

    Raises:
        RequestError: the request has images, an id is not in the vocabulary, or the prompt is too
            short or too long.
    """
    if request.images:
        raise RequestError("is given, but this engine takes text only", field="image")
    keep = request.sampling.truncate_prompt_tokens
    if isinstance(request.prompt, tuple):
        _check_vocabulary(request.prompt, vocabulary)
        ids: Sequence[int] = request.prompt
    else:
        text = _cut(request.prompt, keep, longest)
        check_characters(len(text), max_model_len, longest, field="prompt")
        ids = await asyncio.to_thread(encode, text) if len(text) > _LONG_PROMPT else encode(text)
    if keep is not None:
        ids = ids[-keep:]
    if len(ids) < min_tokens or (max_model_len and len(ids) >= max_model_len):
        accepted = f"fewer than {max_model_len}, to leave room for an answer"
        if min_tokens:
            accepted = f"at least one, {accepted}" if max_model_len else "at least one"
        if 0 < max_model_len <= len(ids):
            accepted += f". {context_length(max_model_len)}"
        raise RequestError(f"has {len(ids)} tokens", field="prompt", accepted=accepted)
    return list(ids)


def encoder(tokenizer: Any) -> Callable[[str], Sequence[int]]:
    """Return what turns text into token ids; where a model has no tokenizer, it refuses text."""
    if tokenizer is not None:
        encode: Callable[[str], Sequence[int]] = tokenizer.encode
        return encode
    return _refuse_text


def _refuse_text(_: str) -> Sequence[int]:
    problem = "is text, and the model has no tokenizer (option.skip_tokenizer_init)"
    raise RequestError(problem, field="prompt", accepted="token ids")


def longest_token(tokenizer: Any) -> int:
    """Return the characters of a tokenizer's longest token; 0 where it does not list its tokens."""
    vocabulary: dict[str, int] = getattr(tokenizer, "get_vocab", dict)()
    return max(map(len, vocabulary), default=0)


def _cut(text: str, keep: int | None, longest: int) -> str:
    """Return the end of a text that surely holds its last tokens."""
    # One more: the cut may go through a token.
    most = (keep + 1) * longest if keep is not None else 0
    return text[-most:] if most else text


def _check_vocabulary(ids: Sequence[int], vocabulary: int) -> None:
    if vocabulary and (unknown := [number for number in ids if not 0 <= number < vocabulary]):
        problem, accepted = f"has token id {unknown[0]}", f"0 to {vocabulary - 1}"
        raise RequestError(problem, field="prompt", accepted=accepted)


def chat_ids(
    tokenizer: Any,
    messages: list[dict[str, Any]],
    options: dict[str, Any],
    *,
    max_model_len: int = 0,
    longest: int = 0,
) -> list[int]:
    """Return the token ids of a chat, by the template of a Hugging Face tokenizer.

    Args:
        max_model_len, longest: see `prompt_ids`.

    Raises:
        RequestError: the messages are too long, the model has no template, it refuses them, or an
            option is not one of its variables; a template of the client's own, for one, is a
            program that may never end.
    """
    characters = sum(len(str(message.get("content") or "")) for message in messages)
    check_characters(characters, max_model_len, longest, field="messages")
    arguments = inspect.signature(tokenizer.apply_chat_template).parameters.keys()
    if refused := options.keys() & arguments - _FROM_A_CLIENT:
        problem = f"has {', '.join(sorted(refused))}"
        accepted = "variables of the model's own chat template"
        raise RequestError(problem, field="chat_template_kwargs", accepted=accepted)
    try:
        ids = tokenizer.apply_chat_template(
            messages, **options | {"tokenize": True, "return_dict": False}
        )
    except Exception as error:
        # A template is a program of the model's author, and raises what it likes.
        problem = f"are refused by the model's chat template: {error}"
        raise RequestError(problem, field="messages") from error
    return list(ids)


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
        max_model_len, longest: see `prompt_ids`.
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
            spanning = msgspec.json.decode(request.body, type=Spanning)
            check_characters(len(spanning.text), max_model_len, longest, field="inputs")
            ids = await chat_ids(spanning.chat) if spanning.chat is not None else None
            answer = await asyncio.to_thread(_spans, spanning, ids, tokenizer)
        else:
            ids = msgspec.json.decode(request.body, type=TokenIds).ids
            _check(ids, tokenizer)
            answer = await asyncio.to_thread(tokenizer.decode, ids, skip_special_tokens=True)
    except RequestError as error:
        return HttpChunk(str(error).encode(), is_last=True, status=HTTPStatus.BAD_REQUEST)
    except HttpError as error:
        return HttpChunk(str(error).encode(), is_last=True, status=error.status)
    return HttpChunk(msgspec.json.encode(answer), is_last=True, headers=_JSON)


def _spans(spanning: Spanning, ids: list[int] | None, tokenizer: Any) -> Spans:
    """Return the tokens of a text, or of a chat whose ids are given."""
    if not getattr(tokenizer, "is_fast", False):
        raise HttpError(HTTPStatus.NOT_FOUND, "the model has no fast tokenizer, which tells places")
    if ids is None:
        return Spans(spanning.text, _placed(spanning.text, tokenizer, special=spanning.special))
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


class TemplateEngine(Engine):
    """An engine that knows its model's chat template, and has no HTTP server of its own.

    `start` sets the members. A request that resumes is answered from its beginning, in the same
    deltas. The deltas that its client has carry no ids: the writer of the body's answer needs them.
    """

    tokenizer: Any
    """One of Hugging Face's."""
    max_model_len: int = 0
    """Longest prompt plus answer, in tokens; 0 if it is not known."""
    longest_token: int = 0
    """Characters of the tokenizer's longest token; 0 if they are not known."""

    async def chat_prompt(
        self, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> list[int]:
        longest, most = self.longest_token, self.max_model_len
        return await asyncio.to_thread(
            chat_ids, self.tokenizer, messages, options, max_model_len=most, longest=longest
        )

    async def answer_tokens(self, request: HttpRequest) -> HttpChunk:
        longest, most = self.longest_token, self.max_model_len
        return await answer_tokens(
            request, self.tokenizer, max_model_len=most, longest=longest, chat_ids=self._chat_ids
        )

    async def _chat_ids(self, body: dict[str, Any]) -> list[int]:
        read = read_chat(body)
        return await self.chat_prompt(read.messages, read.template_options)
