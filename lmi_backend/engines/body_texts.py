"""How long the prompts of an OpenAI body are, counted before they become tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import RequestError
from lmi_backend.tokenization import check_characters

if TYPE_CHECKING:
    from lmi_backend.engines.bodies import BodyBounds
    from lmi_backend.outline import Outline

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
_ALL: Final = tuple(dict.fromkeys((*CHAT, *TEXTS)))
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


class BodyTexts:
    """The prompts of a body."""

    def __init__(self, fields: Mapping[str, Any], bounds: BodyBounds, outlined: Outline) -> None:
        self._fields, self._bounds, self._outlined = fields, bounds, outlined

    def check(self) -> None:
        """Raise RequestError for prompts that are too long, or too many."""
        fields = self._fields
        for name in _ALL:
            value = fields.get(name)
            if isinstance(value, list) and len(value) > MOST_ITEMS and not _is_ids(value):
                problem = f"has {len(value)} members"
                raise RequestError(problem, field=name, accepted=f"at most {MOST_ITEMS}")
        self._check_chats()
        self._check_together()

    def _check_chats(self) -> None:
        fields = self._fields
        around = {name: self._characters(fields[name]) for name in _AROUND if name in fields}
        chats = _conversations(fields)
        if chats or any(around[name] for name in around.keys() & _CHAT_ONLY):
            for name, chat in chats or [(max(around, key=around.__getitem__), None)]:
                self._check_length(name, sum(around.values()) + self._characters(chat))

    def _check_together(self) -> None:
        bounds, together = self._bounds, 0
        for name in TEXTS:
            if (value := self._fields.get(name)) is None:
                continue
            for item in value if isinstance(value, list) else (value,):
                count = self._characters(item)
                together += count
                self._check_length(name, count)
        if together > (most := max(MOST_TOGETHER, bounds.max_model_len * bounds.longest)):
            problem = f"have {together} characters together"
            raise RequestError(problem, field="the prompts", accepted=f"at most {most}")

    def _check_length(self, name: str, characters: int) -> None:
        bounds = self._bounds
        if self._fields.get(TRUNCATED) is None or characters > _CUT:
            check_characters(characters, bounds.max_model_len, bounds.longest, field=name)

    def _characters(self, value: Any) -> int:
        """Return the characters of all strings in a value, without those of media."""
        count, left = 0, [value]
        while left:
            each = left.pop()
            if isinstance(each, str):
                long = self._outlined.find(each)
                count += long.characters if long is not None else len(each)
            elif isinstance(each, list):
                left += each
            elif isinstance(each, dict):
                left += _texts_of(each)
                left += (name for name in each if len(name) > _LONGEST_NAME or self._is_long(name))
        return count

    def _is_long(self, name: str) -> bool:
        return self._outlined.find(name) is not None


def _is_ids(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], int)


def _conversations(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the conversations of a body, each with the name of its field.

    The input of embeddings is a text or a list of prompts. So is that of a response, but messages.
    """
    found: list[tuple[str, Any]] = []
    for name in ("messages", "input"):
        value = fields.get(name)
        items = value if isinstance(value, list) else []
        kind = list if name == "messages" else (str, list)
        if any(isinstance(each, kind) for each in items):
            found += ((name, each) for each in items)
        elif value is not None and not _is_ids(items):
            found.append((name, value))
    return found


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
