"""Prompts in the forms clients write them."""

from __future__ import annotations

from lmi_backend.errors import RequestError
from lmi_backend.schema.values import STRING, read_value

Prompt = str | tuple[int, ...]

_ACCEPTED = "a string, a list of strings, token ids, or a list of lists of token ids"
_MAX_ID = 1 << 31


def read_prompts(field: str, value: object) -> tuple[list[Prompt], bool]:
    """Return the prompts and whether they came as a list.

    Raises:
        RequestError: there is none, or it is empty or no prompt.
    """
    if isinstance(value, list) and value and not all(_is_id(item) for item in value):
        return [_read(field, item) for item in value], True
    return [_read(field, value)], False


def prompt_text(prompt: Prompt) -> str:
    """Return the text of a prompt; an empty one for token ids."""
    return prompt if isinstance(prompt, str) else ""


def _read(field: str, value: object) -> Prompt:
    if isinstance(value, list | tuple) and value and all(_is_id(item) for item in value):
        return tuple(value)
    if not value:
        raise RequestError("is empty", field=field, accepted="a prompt")
    if not isinstance(value, str):
        raise RequestError("is not a prompt", field=field, value=value, accepted=_ACCEPTED)
    text: str = read_value(STRING, field, value)
    return text


def _is_id(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item < _MAX_ID
