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
        chats = fields.get("messages")
        if isinstance(chats, list) and any(isinstance(each, list) for each in chats):
            for chat in chats:
                self._check_length("messages", self._characters(chat))
        elif chats is not None or _is_response(fields):
            whole = sum(self._characters(fields[each]) for each in CHAT if each in fields)
            self._check_length("messages" if chats is not None else "input", whole)
        self._check_together()

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
        return count


def _is_ids(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], int)


def _is_response(fields: Mapping[str, Any]) -> bool:
    """Tell whether the input is a list of messages; of embeddings it is a list of prompts."""
    value = fields.get("input")
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


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
