"""The messages by which an answer outlives its front end."""

from __future__ import annotations

from typing import Final

import msgspec

NOT_KEPT: Final = (
    "nothing is kept for this last-event-id with this key, path and body: option.resume_window is "
    "over, or the id belongs to another request; send the request without it"
)
"""What a client is told that returns for an answer which is not kept."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Keep(msgspec.Struct, frozen=True, array_like=True):
    """How an answer is kept for a client that loses its connection, or its front end."""

    name: str
    """Of the answer; its client has it in the ids of events."""
    owner: str
    """Digest of all that a request for the rest must have in common with the first one."""
    seconds: float
    """Time that it is kept without a front end."""


class Rejoin(_Message, frozen=True):
    """Send the answer of a name from its beginning: another front end had begun it."""

    id: int
    name: str
    owner: str


class Rejoined(_Message, frozen=True):
    """The first answer to a `Rejoin`; what follows comes as that of a new request does."""

    id: int
    blocks: list[bytes]
    """The chunks so far (`kept_chunks.py`)."""


class Forget(_Message, frozen=True):
    """Keep the answer of a name no longer."""

    name: str
