"""The messages about answers that the stub buffers for clients that reconnect."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from lmi_backend.generation import Continuation

NOT_BUFFERED: Final = (
    "nothing is buffered for this last-event-id with this key, path and body; send the request "
    "without it. Perhaps option.resume_window is over, the answer is too long, or the id is of "
    "another request. Perhaps the process of the model died while no client was connected"
)
"""What a client is told that returns for an answer which is not buffered."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Buffering(msgspec.Struct, frozen=True, array_like=True):
    """How an answer is buffered."""

    name: str
    """Of the answer; its client has it in the ids of events."""
    owner: str
    """Digest of all that a request for the rest must have in common with the first one."""
    seconds: float
    """Time that it is buffered without a client."""
    is_lasting: bool = False
    """Whether that time begins at its end: its client need not stay."""
    key: str | None = None
    """The client's key, as a digest, if the answer is a response: `Find` has its id."""
    num_events: int = 0
    """Those that its client has from a process of the model that has died."""
    block: bytes = b""
    """What stands for them (`chunk_log.py`): the log begins with it."""


class Rejoin(_Message, frozen=True):
    """Send the answer of a name from its beginning, and what follows."""

    id: int
    name: str
    owner: str


class Rejoined(_Message, frozen=True):
    """The first answer to a `Rejoin`; what follows comes as that of a new request does."""

    id: int
    blocks: list[bytes]
    """The answer so far (`chunk_log.py`)."""
    num_events: int = 0
    """Those for which the first block stands, if there are any."""
    where: Continuation | None = None
    """Where the model resumed then."""


class Left(_Message, frozen=True):
    """The client of a buffered answer has left, or has all of it."""

    id: int
    returns: bool = True
    """False: the answer is deleted, and cancelled if it is not complete."""


class Ended(_Message, frozen=True):
    """An answer without a client is over, or another request has it: sent once for each `Left`."""

    id: int
    num_tokens: int = 0
    """Generated meanwhile."""


class Find(_Message, frozen=True):
    """Is the response of an id buffered for this key? If it is, do something with it."""

    key: str
    name: str
    verb: Literal["read", "cancel", "delete"] = "read"


class Found(_Message, frozen=True):
    """The answer to a `Find`."""

    state: Literal["", "running", "over", "cancelled", "deleted"] = ""
    """Empty where there is none."""
    buffering: Buffering | None = None
    blocks: list[bytes] = []
    """The first block, and the last of what is over."""


ForBuffered = Rejoin | Left | Find
OfBuffered = Rejoined | Ended | Found
