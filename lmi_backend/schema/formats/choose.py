"""Formats by the names LMI gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.errors import RequestError
from lmi_backend.schema.formats.forms import Events, Lines, RawText, WholeJson

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.schema.formats.asked import Asked, Format

_FORMS: Final[dict[str, Callable[[Asked], Format]]] = {
    "json": WholeJson,
    "jsonlines": Lines,
    "sse": Events,
    "none": RawText,
}
NAMES: Final = tuple(_FORMS)
"""Accepted values of `output_formatter`."""


def make_format(name: str, asked: Asked) -> Format:
    """Return the format of a name; empty chooses by whether the answer streams.

    Raises:
        RequestError: there is none of that name.
    """
    if not name:
        streamed = "sse" if asked.tgi_compat else "jsonlines"
        name = streamed if asked.stream else "json"
    # LMI's names for chat; chat bodies have OpenAI's form, and others the same as without.
    name = name.removesuffix("_chat")
    if name not in _FORMS:
        accepted = ", ".join(NAMES)
        field = "output_formatter"
        raise RequestError("is not a formatter", field=field, value=name, accepted=accepted)
    return _FORMS[name](asked)
