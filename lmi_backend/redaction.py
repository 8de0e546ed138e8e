"""Keep secrets out of what people and machines read: logs, errors, plans."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = re.compile(
    r"(token|secret|password|_pass|passwd|credentials?|api_?key|access_key|private_key)$",
    re.IGNORECASE,
)
# Hugging Face's tokens, AWS's key ids, bearers of HTTP, and passwords in addresses.
_FORMS: Final = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|(?<=[Bb]earer )[\w.~+/=-]{8,}"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"
)
_HIDDEN: Final = "***"
# Shorter values are words that occur everywhere, such as "none".
_SHORTEST: Final = 8


def is_secret(name: str) -> bool:
    """Tell whether what has this name is a secret."""
    return bool(_NAME.search(name))


def masked(name: str, value: str) -> str:
    """Return a value without its secrets: all of it, or the pairs in it, as option.env has them."""
    if is_secret(name):
        return _HIDDEN
    return _FORMS.sub(_HIDDEN, ",".join(_masked_pair(pair) for pair in value.split(",")))


def _masked_pair(pair: str) -> str:
    name, is_pair, _ = pair.partition("=")
    return f"{name}={_HIDDEN}" if is_pair and is_secret(name) else pair


class Redactor:
    """Removes the secrets of an environment, and what looks like one, from texts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = (value for name, value in environment.items() if is_secret(name))
        # The longest first: one may be part of another.
        known = sorted({v for v in values if len(v) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """Return a text without them."""
        if self._known is not None:
            text = self._known.sub(_HIDDEN, text)
        return _FORMS.sub(_HIDDEN, text)
