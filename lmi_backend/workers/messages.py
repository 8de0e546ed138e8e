"""All that stub and worker say to each other.

A conversation: the worker connects and says `Hello`; the stub answers `Start`; the worker says
`Ready` or `StartFailed`. Then `Submit` and `Abort` go in, `Output` and `Failure` come out, any
number of them in one frame, and a `Heartbeat` every second. `Stop` or the end of the socket ends
the worker.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from lmi_backend.engines.protocol import Capabilities, EngineConfig, EngineStats
from lmi_backend.generation import Delta, GenerateRequest

PROTOCOL: Final = 1
HEARTBEAT_SECONDS: Final = 1.0

FailureKind = Literal["request", "engine", "dead", "stopping"]


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Start(_Message, frozen=True):
    """Load this engine."""

    engine: str
    config: EngineConfig


class Submit(_Message, frozen=True):
    """Generate; `id` is the stub's number of the request."""

    id: int
    request: GenerateRequest


class Abort(_Message, frozen=True):
    """Nobody waits for these requests any more."""

    ids: list[int]


class Stop(_Message, frozen=True):
    """End; whatever still runs is failed."""


class Hello(_Message, frozen=True):
    """First word of a worker. `token` proves that the stub started it."""

    protocol: int
    token: str
    pid: int


class Ready(_Message, frozen=True):
    """The engine takes requests."""

    capabilities: Capabilities


class StartFailed(_Message, frozen=True):
    """The engine cannot start. `option` is the key of a refused option, else empty."""

    message: str
    option: str = ""


class Output(_Message, frozen=True):
    """A piece of an answer."""

    id: int
    delta: Delta


class Failure(_Message, frozen=True):
    """A request ended without an answer."""

    id: int
    kind: FailureKind
    message: str
    field: str = ""
    """For kind "request": what the message speaks of, such as "prompt"."""


class Heartbeat(_Message, frozen=True):
    """The worker's event loop turns; also sent whenever the figures change."""

    stats: EngineStats


ToWorker = Start | Submit | Abort | Stop
FromWorker = Hello | Ready | StartFailed | Output | Failure | Heartbeat
