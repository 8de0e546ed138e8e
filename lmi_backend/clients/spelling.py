"""Names that are spelt with capitals or hyphens, as those of other servers' clients are."""

from __future__ import annotations

import re
from typing import Final

_BORDER: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def plain_name(name: str) -> str:
    """Return a name as the members of bodies are spelt: `max_tokens` for `maxTokens`."""
    # Most names are plain.
    if name.islower() and "-" not in name:
        return name
    return _BORDER.sub("_", name).replace("-", "_").lower()
