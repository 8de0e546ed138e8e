"""Look at an OpenAI body before a server of the engine's does: what it holds, and how much.

A body is read, validated and turned into tokens on the loop, or in the one thread, that serves all
requests. So each kind of work has a bound, which is looked at before the work is done: values are
counted before they are read, and prompts before they become tokens. vLLM 0.32 itself bounds the
nesting of a schema, the time of a regular expression, and the characters of most prompts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from lmi_backend.clients.openai import TOKENS
from lmi_backend.clients.openai_bodies import DROPPED
from lmi_backend.clients.registry import UPLOADS
from lmi_backend.clients.unserved import HARMLESS, HINTS
from lmi_backend.engines import body_members
from lmi_backend.engines.body_members import RESPONSES, check_nested, is_mendable, mended
from lmi_backend.errors import RequestError
from lmi_backend.generation import Sampling
from lmi_backend.json_text import MOST_VALUES, UNREADABLE, TooManyValuesError, check_values
from lmi_backend.names import check_name
from lmi_backend.structures import (
    DEFAULT_BOUNDS,
    StructureBounds,
    check_depth,
    check_structure,
    check_structures,
)
from lmi_backend.tokenization import check_characters

CHAT: Final = (
    "messages", "system", "tools", "functions", "chat_template_kwargs", "chat_template",
    "documents", "instructions", "input", "previous_input_messages",
)  # fmt: skip
"""Fields that make one prompt together, in a chat or in a response."""
_AROUND: Final = tuple(name for name in CHAT if name not in ("messages", "input"))
"""Those that each conversation of a body is rendered with."""
_CHAT_ONLY: Final = frozenset(_AROUND) - {"system", "documents", "instructions"}
"""Those that no body of other kinds has."""
TEXTS: Final = (
    "prompt", "input", "inputs", "texts", "suffix", "text_1", "text_2", "data_1", "data_2", "query",
    "queries", "documents", "items", "instruction", "instructions", "system", "questions", "state",
)  # fmt: skip
"""Fields with a prompt, or a list of prompts."""
_EVERY: Final = tuple(dict.fromkeys((*CHAT, *TEXTS)))
_MEDIA: Final = frozenset(
    {
        "image_url", "video_url", "audio_url", "input_audio", "image_pil", "image_embeds",
        "audio_embeds", "video_embeds", "source", "file_data",
    }
)  # fmt: skip
"""Members of a part of a message that are no text."""
TRUNCATED: Final = "truncate_prompt_tokens"
MOST_ITEMS: Final = 4096
"""Messages, prompts, documents or tools of a body."""
_LONGEST_NAME: Final = 32
"""Characters of a member's name up to which it is an API's; a longer one is text of a schema."""
_CUT: Final = 1_000_000
"""Characters of a prompt that is to be truncated, for a model of any length: 0.5 s."""

MOST_TOGETHER: Final = 8_000_000
"""Characters of all prompts of a body, unless one alone may have more. One thread turns the prompts
of all requests into tokens, 2 million characters a second."""


def _check_texts(fields: Mapping[str, Any], bounds: BodyBounds) -> None:
    """Refuse prompts that are too long, or too many."""
    for name in _EVERY:
        value = fields.get(name)
        if isinstance(value, list) and len(value) > MOST_ITEMS and not _is_ids(value):
            problem = f"has {len(value)} members"
            raise RequestError(problem, field=name, accepted=f"at most {MOST_ITEMS}")
    around = {name: _characters(fields[name]) for name in _AROUND if name in fields}
    chats = _conversations(fields)
    if chats or any(around[name] for name in around.keys() & _CHAT_ONLY):
        for name, chat in chats or [(max(around, key=around.__getitem__), None)]:
            _check_length(name, sum(around.values()) + _characters(chat), fields, bounds)
    together = 0
    for name in TEXTS:
        value = fields.get(name, [])
        for count in map(_characters, value if isinstance(value, list) else (value,)):
            together += count
            _check_length(name, count, fields, bounds)
    if together > (most := max(MOST_TOGETHER, bounds.max_model_len * bounds.longest)):
        problem = f"have {together} characters together"
        raise RequestError(problem, field="the prompts", accepted=f"at most {most}")


def _check_length(
    name: str, characters: int, fields: Mapping[str, Any], bounds: BodyBounds
) -> None:
    if fields.get(TRUNCATED) is None or characters > _CUT:
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
            left += (name for name in each if len(name) > _LONGEST_NAME)
    return count


def _is_ids(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], int)


def _conversations(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the conversations of a body, each with the name of its field.

    The input of embeddings is a text or a list of prompts. So is that of a response, but messages.
    """
    conversations: list[tuple[str, Any]] = []
    for name in ("messages", "input"):
        value = fields.get(name)
        items = value if isinstance(value, list) else []
        kind = list if name == "messages" else (str, list)
        if any(isinstance(each, kind) for each in items):
            conversations += ((name, each) for each in items)
        elif value is not None and not _is_ids(items):
            conversations.append((name, value))
    return conversations


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


NAMES: Final = (
    "model", "request_id", "session_id", "cache_salt", "prompt_cache_key", "previous_response_id",
)  # fmt: skip
"""Fields that name something; vLLM sends some of them back, and logs some. A user is any text to
OpenAI's and Anthropic's clients; it is never logged, and comes back as JSON if at all."""
STRUCTURES: Final = (
    "response_format", "structured_outputs", "tools", "tool_choice", "text", "output_config",
    *body_members.CONSTRAINTS,
)  # fmt: skip
"""Fields of chats, completions, responses and Anthropic's messages that become a grammar."""
LISTS: Final = (
    "stop", "stop_sequences", "stop_token_ids", "bad_words", "logit_bias", "allowed_token_ids",
    "logprob_token_ids",
)  # fmt: skip
"""Fields with a member for each token or string."""
MEDIA: Final = ("media_io_kwargs", "mm_processor_kwargs")
"""Fields that change how images, clips and sounds are decoded, and how much is made of them."""
OF_TOKENS: Final = ("sampling_params", "features")
"""vLLM's own parameters, which are an object there, and images, clips and sounds as arrays."""
MOST_LETTERS: Final = 16_384
"""Characters of a list of bad words, or of stop strings: vLLM tokenises them on its loop."""
MOST_REPEATED: Final = 1 << 20
"""Bytes of a response's members that each of its first and last events repeats."""
_NOT_REPEATED: Final = frozenset({"input", "previous_input_messages"})
# Whatever else is in a body is passed over and never built.
_ALL: Final = frozenset(
    {
        *(*NAMES, *STRUCTURES, *LISTS, *CHAT, *TEXTS, *MEDIA, *OF_TOKENS, TRUNCATED),
        *(*body_members.NAMES, body_members.ENCODING),
    }
)
_IGNORED: Final = _ALL | HARMLESS.keys() | {*HINTS}
Members = dict[str, msgspec.Raw]
_DECODER: Final = msgspec.json.Decoder(Members)
_value: Final = msgspec.json.decode


@dataclass(frozen=True)
class BodyBounds:
    """How much a body may hold."""

    structures: StructureBounds = DEFAULT_BOUNDS
    max_model_len: int = 0
    longest: int = 0
    """See `tokens.prompt_ids`."""
    trusts_media: bool = False
    """Whether clients may choose how media are decoded."""
    runs_tools: bool = False
    """Whether the engine's server has tools of its own for a response."""
    reads: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Path to the members that the engine's server reads of its bodies, as far as it tells."""

    @property
    def values(self) -> int:
        return max(MOST_VALUES, 2 * self.max_model_len)


def members_of(body: bytes) -> Members | None:
    """Return the members of a body, whose values are not read yet; None if there are none."""
    try:
        return _DECODER.decode(body)
    except UNREADABLE:
        return None


class CheckedBody(NamedTuple):
    """What the engine's server gets of a body that is within the bounds."""

    data: bytes
    fields: Mapping[str, Any] = {}
    """The members that were looked at; none where another reader may read them otherwise."""
    members: Members | None = None
    """See `members_of`."""


def check_body(body: bytes, bounds: BodyBounds, path: str = "") -> CheckedBody:
    """Look at a body before the engine's server does.

    Parameters that vLLM's server would ignore under a foreign name get vLLM's names. A small body
    that is not a JSON object is left to the server, which refuses it.

    Args:
        path: that the body was sent to.

    Raises:
        RequestError: a name is too long, or something too large, or a member is not served; it
            names the field and what is accepted.
    """
    if path in UPLOADS:
        # The server bounds the file, and what it decodes of it.
        return CheckedBody(body)
    try:
        check_values(body, bounds.values)
        fields, is_usual = _fields(body, members := members_of(body))
    except TooManyValuesError as error:
        raise RequestError(str(error), field="the body") from None
    except RecursionError:
        raise RequestError("is nested too deeply", field="the body") from None
    _check_names(fields if members is None else members, read := bounds.reads.get(path, ()))
    _check_fields(fields, bounds)
    if path == TOKENS:
        _check_of_tokens(fields, bounds.structures)
    if path == RESPONSES and len(body) > MOST_REPEATED:
        _check_repeated(body, members or {})
    check_nested(fields, path, runs_tools=bounds.runs_tools)
    changed = body_members.changes(fields, path, read)
    is_changed = is_mendable(fields, path)
    if not changed and not is_changed:
        return CheckedBody(body, fields if is_usual else {}, members)
    check_structures(changed.get("structured_outputs", {}), bounds.structures)
    whole = json.loads(body)
    data = body_members.rewritten(mended(whole, path) if is_changed else whole, changed)
    return CheckedBody(data, {**fields, **changed} if is_usual else {}, members_of(data))


def _fields(body: bytes, members: Members | None) -> tuple[dict[str, Any], bool]:
    """Return the members of a body that are looked at, and whether every reader reads them so."""
    try:
        if members is not None:
            return {name: _value(raw) for name, raw in members.items() if name in _ALL}, True
    except UNREADABLE:
        pass
    try:
        # As vLLM's server reads it: with NaN and huge numbers, and in other encodings.
        whole = json.loads(body)
    except ValueError:
        return {}, False
    return (whole if isinstance(whole, dict) else {}), False


def _check_names(names: Collection[str], read: Collection[str]) -> None:
    """Refuse a name that is spelt otherwise; report those that nothing reads."""
    body_members.check_spelling(names)
    # Most bodies have none of the latter.
    if read and (unread := [each for each in names if each not in read and each not in _IGNORED]):
        DROPPED.note(unread)


def _check_fields(fields: Mapping[str, Any], bounds: BodyBounds) -> None:
    for name in NAMES:
        if isinstance(value := fields.get(name), str):
            check_name(name, value)
    for name in () if bounds.trusts_media else MEDIA:
        if fields.get(name):
            accepted = "nothing, without option.trust_request_mm_kwargs=true"
            raise RequestError("may take any memory", field=name, accepted=accepted)
    check_lists(fields, bounds.structures)
    _check_texts(fields, bounds)
    for name in STRUCTURES:
        if fields.get(name) is not None:
            # Tools that the model may choose are text of the prompt. Where an engine makes a
            # grammar of some, that is checked when it does.
            is_text = (
                name == "tools"
                and isinstance(fields[name], list)
                and _chooses_itself(fields.get("tool_choice"))
            )
            check = check_depth if is_text else check_structure
            check(name, fields[name], bounds.structures)


def _check_of_tokens(fields: Mapping[str, Any], bounds: StructureBounds) -> None:
    """Look at members that only bodies of tokens have: see `OF_TOKENS`."""
    sampling, media = (fields.get(name) for name in OF_TOKENS)
    if media:
        raise RequestError("holds arrays that are read unseen", field=OF_TOKENS[1])
    if not isinstance(sampling, dict):
        return
    check_lists(sampling, bounds)
    if (count := sampling.get("n")) not in (None, 1):
        problem, field = "would take several places", f"{OF_TOKENS[0]}.n"
        raise RequestError(problem, field=field, value=count, accepted="1")


def _check_repeated(body: bytes, members: Members) -> None:
    """Raise RequestError for more than a response may repeat."""
    own = (raw for name, raw in members.items() if name in _NOT_REPEATED)
    size = len(body) - sum(len(memoryview(raw)) for raw in own)
    if size > MOST_REPEATED:
        accepted = f"at most {MOST_REPEATED}: the events of a response repeat them"
        raise RequestError(f"have {size} bytes", field="the members but input", accepted=accepted)


def _chooses_itself(choice: Any) -> bool:
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return kind in (None, "auto", "none")


def check_lists(fields: Mapping[str, Any], bounds: StructureBounds) -> None:
    for name in LISTS:
        if (value := fields.get(name)) is None:
            continue
        if isinstance(value, list | tuple | dict) and len(value) > bounds.choices:
            accepted = f"at most {bounds.choices} (option.max_structure_choices)"
            raise RequestError(f"has {len(value)} members", field=name, accepted=accepted)
        words = value if isinstance(value, list | tuple) else (value,)
        if (count := sum(len(each) for each in words if isinstance(each, str))) > MOST_LETTERS:
            accepted = f"at most {MOST_LETTERS}"
            raise RequestError(f"has {count} characters", field=name, accepted=accepted)


def check_sampling(sampling: Sampling, bounds: StructureBounds) -> None:
    lists = {name: getattr(sampling, name) for name in ("stop", "stop_token_ids", "bad_words")}
    check_lists({**sampling.extra, **lists}, bounds)
