"""Members of a body that are spelt otherwise than a server reads them: `maxTokens`, `guided-json`.

vLLM's server passes over them. What limits, selects or constrains an answer is refused instead.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lmi_backend.clients.spelling import plain_name
from lmi_backend.clients.unserved_names import HARMLESS, UNSERVED
from lmi_backend.engines import foreign_names
from lmi_backend.errors import RequestError

_READ: Final = (
    "frequency_penalty", "logprobs", "max_completion_tokens", "max_output_tokens", "max_tokens",
    "parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed",
    "stop", "stop_sequences", "temperature", "tool_choice", "tools", "top_k", "top_logprobs",
    "top_p",
)  # fmt: skip
"""Members that a server reads, where it does not tell them."""
_MEANT: Final = frozenset({*_READ, *foreign_names.NAMES}) - HARMLESS.keys()


def check_spelling(names: Collection[str]) -> None:
    """Raise RequestError for a name with capitals or hyphens that is another one without them."""
    # Most bodies have plain names alone.
    together = "".join(names)
    if together.islower() and "-" not in together:
        return
    for name in names:
        plain = plain_name(name)
        if plain != name and plain in _MEANT:
            accepted = "nothing" if plain in UNSERVED else plain
            raise RequestError("is not read", field=name, accepted=accepted)
