"""Look at an OpenAI body before a server of the engine's does: what it holds, and how much.

A body is read, validated and turned into tokens on the loop, or in the one thread, that serves all
requests. So each kind of work has a bound, which is looked at before the work is done. vLLM 0.32
itself bounds the nesting of a schema, the time of a regular expression, and the characters of most
prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from lmi_backend.engines.prompts import check_characters
from lmi_backend.errors import RequestError
from lmi_backend.generation import Sampling
from lmi_backend.names import check_name
from lmi_backend.structures import DEFAULT_BOUNDS, StructureBounds, check_structure

NAMES: Final = (
    "model", "user", "request_id", "session_id", "cache_salt", "prompt_cache_key",
    "safety_identifier", "previous_response_id",
)  # fmt: skip
"""Fields that name something; vLLM sends some of them back, and logs some."""
STRUCTURES: Final = (
    "response_format", "structured_outputs", "tools", "tool_choice", "text", "output_config",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_whitespace_pattern",
)  # fmt: skip
"""Fields of chats, completions, responses and Anthropic's messages of which a grammar is made.
vLLM took those called guided_ before 0.12."""
LISTS: Final = (
    "stop", "stop_sequences", "stop_token_ids", "bad_words", "logit_bias", "allowed_token_ids",
    "logprob_token_ids",
)  # fmt: skip
"""Fields with a member for each token or word."""
CHAT: Final = (
    "messages", "system", "tools", "functions", "chat_template_kwargs", "chat_template",
    "documents", "instructions", "input", "previous_input_messages",
)  # fmt: skip
"""Fields that make one prompt together, in a chat or in a response."""
TEXTS: Final = (
    "prompt", "input", "inputs", "texts", "suffix", "text_1", "text_2", "data_1", "data_2", "query",
    "queries", "documents", "items", "instruction", "instructions", "system", "questions", "state",
)  # fmt: skip
"""Fields with a prompt, or a list of prompts."""
_MEDIA: Final = frozenset(
    {
        "image_url", "video_url", "audio_url", "input_audio", "image_pil", "image_embeds",
        "audio_embeds", "video_embeds", "source", "file_data",
    }
)  # fmt: skip
"""Members of a part of a message that are no text."""
_TRUNCATED: Final = "truncate_prompt_tokens"
MOST_ITEMS: Final = 4096
"""Messages, prompts, documents or tools of a body."""
MOST_LETTERS: Final = 16_384
"""Characters of a list of words, or of stop strings: vLLM turns words into tokens on its loop."""
FEWEST_VALUES: Final = 300_000
"""Values that a body may hold, whatever the model's length; to read them takes 0.1 s."""
_CUT: Final = 1_000_000
"""Characters of a prompt that is to be truncated, whatever the model's length: 0.5 s."""

MOST_TOGETHER: Final = 8_000_000
"""Characters of all prompts of a body, unless one alone may have more. One thread turns the prompts
of all requests into tokens, 2 million characters a second."""

# Whatever else is in a body is passed over and never built.
_ALL: Final = dict.fromkeys((*NAMES, *STRUCTURES, *LISTS, *CHAT, *TEXTS, _TRUNCATED))
_DECODER: Final = msgspec.json.Decoder(
    msgspec.defstruct("Fields", [(name, Any, None) for name in _ALL])
)


@dataclass(frozen=True)
class BodyBounds:
    """How much a body may hold."""

    structures: StructureBounds = DEFAULT_BOUNDS
    max_model_len: int = 0
    longest: int = 0
    """See `prompts.prompt_ids`."""

    @property
    def values(self) -> int:
        """Values in a body; the ids of a prompt are values."""
        return max(FEWEST_VALUES, 2 * self.max_model_len)


def check_body(body: bytes, bounds: BodyBounds) -> None:
    """Check a body; one that is not a JSON object is left to the server, which refuses it.

    Raises:
        RequestError: a name is too long, or something too large; it names the field and the bound.
    """
    check_values(body, bounds.values)
    try:
        fields = _fields(body)
    except RecursionError:
        raise RequestError("is nested too deeply", field="the body") from None
    for name in NAMES:
        if isinstance(value := fields.get(name), str):
            check_name(name, value)
    check_lists(fields, bounds.structures)
    _check_texts(fields, bounds)
    for name in STRUCTURES:
        if fields.get(name) is not None:
            check_structure(name, fields[name], bounds.structures)


def check_values(body: bytes, most: int) -> None:
    """Raise RequestError for JSON with more values than `most`, without reading it.

    Each value but the first of a list or an object has a comma before it.
    """
    if body.count(b",") <= most:
        return
    # Those in strings do not count.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = bare.count(b'"') // 2
    if count <= 2 * most:
        count = b"".join(bare.split(b'"')[::2]).count(b",")
    if count > most:
        raise RequestError(f"has {count} values", field="the body", accepted=f"at most {most}")


def check_lists(fields: Mapping[str, Any], bounds: StructureBounds) -> None:
    """Raise RequestError for a list of tokens or words that is too long."""
    for name in LISTS:
        value = fields.get(name)
        if isinstance(value, list | tuple | dict) and len(value) > bounds.choices:
            accepted = f"at most {bounds.choices} (option.max_structure_choices)"
            raise RequestError(f"has {len(value)} members", field=name, accepted=accepted)
        words = value if isinstance(value, list | tuple) else (value,)
        if (count := sum(len(each) for each in words if isinstance(each, str))) > MOST_LETTERS:
            accepted = f"at most {MOST_LETTERS}"
            raise RequestError(f"has {count} characters", field=name, accepted=accepted)


def check_sampling(sampling: Sampling, bounds: StructureBounds) -> None:
    """Do the same for what other clients ask."""
    known = {name: getattr(sampling, name) for name in ("stop", "stop_token_ids", "bad_words")}
    check_lists({**sampling.extra, **known}, bounds)


def _check_texts(fields: Mapping[str, Any], bounds: BodyBounds) -> None:
    for name in dict.fromkeys((*CHAT, *TEXTS)):
        value = fields.get(name)
        if isinstance(value, list) and len(value) > MOST_ITEMS and not _is_ids(value):
            problem = f"has {len(value)} members"
            raise RequestError(problem, field=name, accepted=f"at most {MOST_ITEMS}")
    chats = fields.get("messages")
    if isinstance(chats, list) and any(isinstance(each, list) for each in chats):
        for chat in chats:
            _check_length("messages", _characters(chat), fields, bounds)
    elif chats is not None or _is_response(fields):
        whole = sum(_characters(fields.get(each)) for each in CHAT)
        _check_length("messages" if chats is not None else "input", whole, fields, bounds)
    together = 0
    for name in TEXTS:
        value = fields.get(name)
        for item in value if isinstance(value, list) else (value,):
            count = _characters(item)
            together += count
            _check_length(name, count, fields, bounds)
    if together > (most := max(MOST_TOGETHER, bounds.max_model_len * bounds.longest)):
        problem = f"have {together} characters together"
        raise RequestError(problem, field="the prompts", accepted=f"at most {most}")


def _is_ids(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], int)


def _is_response(fields: Mapping[str, Any]) -> bool:
    """Tell whether the input is a list of messages; of embeddings it is a list of prompts."""
    value = fields.get("input")
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


def _check_length(
    name: str, characters: int, fields: Mapping[str, Any], bounds: BodyBounds
) -> None:
    if fields.get(_TRUNCATED) is None or characters > _CUT:
        check_characters(characters, bounds.max_model_len, bounds.longest, field=name)


def _characters(value: Any) -> int:
    """Return the characters of all strings in a value, without those of media."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            count += len(each)
        elif isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            left += _texts_of(each)
    return count


def _texts_of(value: Mapping[str, Any]) -> Iterator[Any]:
    for name, item in value.items():
        if name != "content" or not isinstance(item, list):
            yield item
            continue
        for part in item:
            if isinstance(part, dict) and not _MEDIA.isdisjoint(part):
                yield from (each for key, each in part.items() if key not in _MEDIA)
            else:
                yield part


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.structs.asdict(_DECODER.decode(body))
    except msgspec.ValidationError:
        return {}
    except msgspec.DecodeError:
        pass
    try:
        # As vLLM's server reads it: with NaN, and in other encodings.
        read = json.loads(body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
