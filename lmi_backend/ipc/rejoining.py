"""The messages by which an answer outlives its front end."""

from __future__ import annotations

from typing import Final

import msgspec

from lmi_backend.generation import Delta

NOT_KEPT: Final = (
    "nothing is kept for this last-event-id with this key, path and body: option.resume_window is "
    "over, the id is of another request, or front end and stub failed together; send the request "
    "without it"
)
"""What a client is told that returns for an answer which is not kept."""

_BEFORE_BYTES: Final = 2048
"""Memory of a `Before` without what it has of each token, about."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Before(msgspec.Struct, frozen=True, array_like=True):
    """What a client has got of an answer before its model's process died."""

    headers: dict[str, str]
    events: list[bytes]
    """Compressed, without the empty line after each."""
    rest: bytes
    """The beginning of an event."""
    ids: bytes
    """Of its tokens, as a `Continuation` has them; so are the next two, which do not count where
    the front end makes the events."""
    num_lines: int
    head: bytes
    num_tokens: int
    num_prompt_tokens: int
    taken: Delta | None = None
    """What the front end has made the events of, as one, if it makes them."""

    @property
    def memory(self) -> int:
        """Bytes that it takes, about."""
        taken = self.taken.memory if self.taken is not None else 0
        return _BEFORE_BYTES + len(self.ids) + sum(map(len, self.events)) + taken


class Keep(msgspec.Struct, frozen=True, array_like=True):
    """How an answer is kept for a client that loses its connection, or its front end."""

    name: str
    """Of the answer; its client has it in the ids of events."""
    owner: str
    """Digest of all that a request for the rest must have in common with the first one."""
    seconds: float
    """Time that it is kept without a front end."""
    is_lasting: bool = False
    """Whether that time begins at its end: its client need not stay."""
    alias: str = ""
    """By what it is found too (`Named`)."""
    before: Before | None = None
    """What came of it before, where the model resumes it in another process."""


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
    before: Before | None = None
    """What came before them from another process."""


class Forget(_Message, frozen=True):
    """Keep the answer of a name no longer."""

    name: str


class Named(_Message, frozen=True):
    """Find the answer of a name by an alias too; only its owner knows what makes the alias."""

    name: str
    alias: str


class Deleted(_Message, frozen=True):
    """The client of the answer of an alias has deleted it: its engine may still have it."""

    alias: str


class Find(_Message, frozen=True):
    """Is an answer of this alias kept?"""

    alias: str


class Found(_Message, frozen=True):
    """The answer to a `Find`."""

    keep: Keep | None = None
    """How it is kept; None if there is none."""
    is_cancelled: bool = False
    """Whether its client has cancelled it."""
    is_deleted: bool = False
    """Whether its client has deleted it."""


class Cancelled(_Message, frozen=True):
    """The client of the answer of a name cancels it; what there is of it is kept."""

    name: str


class Moved(_Message, frozen=True):
    """Another front end has the whole answer of a name: do not give it to a client any more."""

    name: str


ForKept = Rejoin | Forget | Named | Deleted | Find | Cancelled
OfKept = Rejoined | Found | Moved
