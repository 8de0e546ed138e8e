"""Bodies that differ in their prompt alone, and what vLLM's server makes of all of them."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.engines.vllm.inside.layouts import StreamLayouts
    from lmi_backend.generation import HttpChunk

LIMITS: Final = ("max_completion_tokens", "max_tokens")
"""Members that limit an answer; the first counts."""
NULL: Final = b"null"
members_of: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""Reads a body as far as its members."""
_FREE: Final = frozenset({"messages", "prompt", "user"})
"""Members that may differ between bodies of one kind."""
_MOST_KINDS: Final = 256
"""That are remembered."""
_MOST_BYTES: Final = 256
"""Of a member, above which its digest stands for it."""


class Rendering(NamedTuple):
    """What vLLM's server has given its renderer besides messages, and what it got."""

    given: tuple[Any, ...]
    named: dict[str, Any]
    prompts: Any


class Known(NamedTuple):
    """What vLLM's server makes of each plain chat of a kind."""

    params: Any
    rendering: Rendering
    is_rest: bool
    """Whether an answer may take all that its prompt leaves."""
    head: HttpChunk
    digits: int
    """Of an answer's id, where the client gives none."""
    is_short: bool
    """Whether short chats are rendered without a thread."""


class BodyKind:
    """Bodies of one path that are the same but for their prompt, their limit and their user."""

    def __init__(self) -> None:
        self.is_laid_out = self.is_checked = False
        """Whether its events were looked at; whether a body has passed `check_body` as it was."""
        self.layouts: StreamLayouts | None = None
        self.known: Known | None = None
        self.server: Any = None
        """That of vLLM, which writes the events of errors; only of a kind that is known."""


class Kinds(OrderedDict[Any, BodyKind]):
    """The kinds that came last."""

    def of(self, path: str, members: Mapping[str, msgspec.Raw], *, has_id: bool) -> BodyKind:
        """Return the kind of a body, which is new if no such body came lately.

        Args:
            has_id: whether its client has given its answer an id.
        """
        key = (
            path,
            has_id,
            *((name, _key(name, bytes(raw))) for name, raw in members.items() if name not in _FREE),
        )
        kind = self.get(key)
        if kind is None:
            kind = self[key] = BodyKind()
            if len(self) > _MOST_KINDS:
                self.popitem(last=False)
        else:
            self.move_to_end(key)
        return kind

    def of_body(self, path: str, text: bytes) -> BodyKind | None:
        """Return the kind of any body; None of one that cannot be read."""
        try:
            return self.of(path, members_of(text), has_id=False)
        except UNREADABLE:
            return None


def _key(name: str, raw: bytes) -> Any:
    if name in LIMITS:
        return raw == NULL
    return raw if len(raw) <= _MOST_BYTES else blake2b(raw, digest_size=16).digest()
