"""The messages between stub and worker, and between a model's endpoint and its clients.

A conversation: the worker connects, and both prove that they know the token of this start:
`Challenge`, `Hello`, `Accepted` (`handshake.py`). The stub sends `Start`, the worker `Ready` or
`StartFailed`. A spare says `Prepared` and waits for `Proceed` in between. Then `Submit`,
`SubmitHttp`, `SetAdapter` and `Abort` go in. `Output`, `Events`, `Deltas` and `Failure` come out,
any number of them in one frame, and a `Heartbeat` every second.
`Stop` stops the worker, and so does the end of the socket, unless it may return to the next stub
(`Start.return_to`). Of MPI ranks each holds such a conversation; all but rank 0 only beat.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from lmi_backend.engine_config import Context, EngineConfig, ModelInfo
from lmi_backend.errors import (
    CancelledError,
    DeadlineError,
    EngineDeadError,
    EngineError,
    HttpError,
    LateError,
    LmiError,
    MovedError,
    RequestError,
    StoppingError,
    UnavailableError,
)
from lmi_backend.generation import Chunk, Continuation, GenerateRequest, HttpRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.frames import LARGEST_FRAME
from lmi_backend.tokenization import ID_BYTES

PROTOCOL: Final = 24
HEARTBEAT_SECONDS: Final = 1.0
NOT_BUFFERED: Final = (
    "nothing is buffered for this last-event-id with this key, path and body; send the request "
    "without it. Perhaps option.resume_window is over, the answer is too long, or the id is of "
    "another request. Perhaps the process of the model died while no client was connected"
)
"""What a client is told that returns for an answer which is not buffered."""

FailureKind = Literal[
    "request", "engine", "dead", "stopping", "unavailable", "late", "cancelled", "moved",
    "deadline", "http",
]  # fmt: skip


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Challenge(_Message, frozen=True):
    """First message to a process that connects as a worker: random bytes, used once."""

    nonce: bytes


class Accepted(_Message, frozen=True):
    """The answer to a `Hello`, which proves that it comes from the stub."""

    proof: bytes


class Start(_Message, frozen=True):
    """Load this engine."""

    engine: str
    config: EngineConfig
    flush_policy: FlushPolicy = FlushPolicy()
    hang_seconds: float = 0.0
    """Without a step of an engine that has requests, after which it is dead; 0: never."""
    largest_frame: int = LARGEST_FRAME
    """Bytes of the largest frame that the stub takes."""
    load_seconds: float = 0.0
    """The same as `hang_seconds` for the first steps, in which kernels are compiled."""
    is_spare: bool = False
    """Whether to do only what takes no memory of a device, and to wait for `Proceed` then."""
    loads: bool = False
    """Whether such a spare is to load the engine before it waits: that takes no device."""
    return_to: str = ""
    """Where the next stub finds the worker if this one dies (`ipc/survivor.py`); empty: nowhere."""


class Proceed(_Message, frozen=True):
    """This spare becomes a worker: load the engine now, if that is not done."""


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


class Submit(_Message, frozen=True):
    """Generate for every prompt of a client's request: `id` is the stub's, `name` the client's."""

    id: int
    requests: tuple[GenerateRequest, ...]
    tenant: str = ""
    """On whose behalf: whose turn it takes, and whose share of bounds."""
    buffering: Buffering | None = None
    name: str = ""
    session: str = ""
    """Name that its client gives; workers do not look at it."""
    promise: tuple[int, int] = (0, 0)
    """Milliseconds to its first token and between tokens that its client wants; 0: any time."""


class SubmitHttp(_Message, frozen=True):
    """Answer a whole body."""

    id: int
    request: HttpRequest
    tenant: str = ""
    buffering: Buffering | None = None
    name: str = ""
    session: str = ""
    promise: tuple[int, int] = (0, 0)


class SetAdapter(_Message, frozen=True):
    """Load a LoRA adapter, or forget it where `folder` is empty. Answered by one `Output`."""

    id: int
    name: str
    folder: str
    preload: bool = True
    """Whether its weights are loaded now, not with its first request; `pin` keeps them there."""
    pin: bool = False
    digest: str = ""
    """Changes with its files."""


class Abort(_Message, frozen=True):
    """Nobody waits for these requests any more."""

    ids: list[int]


class Stop(_Message, frozen=True):
    """End; requests that still run are failed."""


class Hello(_Message, frozen=True):
    """First message of a worker, and of an endpoint's client, which proves nothing.

    Every release must be able to read those of all others: fields are only added, at the end.
    """

    protocol: int
    pid: int
    rank: int = 0
    """Number in a group of MPI ranks; each connects."""
    nonce: bytes = b""
    """What the stub's own proof must be made of."""
    proof: bytes = b""
    """That the stub started it."""
    keeps_ids: bool = False
    """Whether a client wants the ids of tokens with their chunks, to resume elsewhere."""
    release: str = ""
    """Of the sender's package; for people, who know no protocol's number."""


class Prepared(_Message, frozen=True):
    """A spare has done all that it can do before `Proceed`."""


class Ready(_Message, frozen=True):
    """The engine takes requests."""

    capabilities: Capabilities
    adapters: dict[str, str] = {}
    """LoRA adapters that it has from an earlier stub: name to digest, empty where uncertain."""


class StartFailed(_Message, frozen=True):
    """The engine cannot start. `option` is the key of a refused option, else empty."""

    message: str
    option: str = ""


class Output(_Message, frozen=True):
    """A chunk of an answer."""

    id: int
    chunk: Chunk


class Events(_Message, frozen=True):
    """Chunks of the middle of streams: what an `Output` for each would say, in columns.

    A struct for each costs several times as much. `ipc/events.py` says which chunks travel so.
    """

    ids: list[int]
    """Of the request of each chunk; one that has two stands here twice."""
    data: list[bytes]
    token_ids: list[bytes]
    """Of the tokens of each chunk, at least one (`token_ids.pack`)."""

    def __post_init__(self) -> None:
        """Refuse what is no events before any of it is kept: `FrameDecoder` raises WorkerError."""
        if not len(self.ids) == len(self.data) == len(self.token_ids):
            raise ValueError("columns of different lengths")
        if min(map(len, self.token_ids), default=ID_BYTES) < ID_BYTES:
            raise ValueError("an event without a token")


class Deltas(Events, frozen=True):
    """Events of deltas: `data` is the delta without its ids, packed."""


class Failure(_Message, frozen=True):
    """A request finished without an answer."""

    id: int
    kind: FailureKind
    message: str
    field: str = ""
    """For kind "request": what is wrong, such as "prompt"."""
    status: int = 0
    """For kind "http": the status; the message is the body. For "late": the seconds to wait."""


class Heartbeat(_Message, frozen=True):
    """The worker's event loop turns; also sent whenever the stats change."""

    stats: EngineStats


class Welcome(_Message, frozen=True):
    """First message of an endpoint to its client, and again when something of it changes."""

    context: Context
    model: ModelInfo


class Refused(_Message, frozen=True):
    """The answer to a `Hello` of another protocol. Every release must be able to read it."""

    reason: str


class Manage(_Message, frozen=True):
    """A management request of an endpoint's client. Answered by one `Output`."""

    id: int
    body: dict[str, Any]


class Drain(_Message, frozen=True):
    """Take no more requests, and let those that run end, within some seconds."""

    seconds: float


class RenewWorker(_Message, frozen=True):
    """Let the requests of a worker resume elsewhere, and restart it."""

    index: int
    seconds: float
    """For those that cannot resume to end."""


class Done(_Message, frozen=True):
    """The answer to a `Drain`: nothing runs any more; to a `RenewWorker`: the next one is ready."""

    cut: int = 0
    """Requests that took longer and failed."""
    problem: str = ""
    """Why not, if it is not so."""


class AskHealth(_Message, frozen=True):
    """Does the model take requests?"""


class Health(_Message, frozen=True):
    """The answer to `AskHealth`."""

    is_ready: bool
    """Whether a request would be admitted."""
    is_given_up: bool = False
    """Whether no worker is left, and none is started again (retry_threshold)."""
    problem: str = ""
    """What is wrong with each worker that is not ready."""


class AskState(_Message, frozen=True):
    """How is the model, in all that people and monitors look at?"""

    log_after: int = -1
    """With the lines of the log whose numbers are above this one; -1: without any."""
    is_brief: bool = False
    """Whether only what changes with each request is wanted, many times a second."""


class State(_Message, frozen=True):
    """The answer to `AskState`."""

    values: dict[str, Any]
    """Plain values, without secrets; `endpoint/state.py` says which."""


# About answers that the stub buffers for clients that reconnect.


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


ToWorker = Challenge | Accepted | Start | Proceed | Submit | SubmitHttp | SetAdapter | Abort | Stop
ForBuffered = Rejoin | Left | Find
_ForRequests = Submit | SubmitHttp | ForBuffered | Manage | Abort
FromClient = Hello | _ForRequests | Drain | RenewWorker | AskHealth | AskState
_OfAnswers = Output | Events | Deltas | Failure
FromWorker = Hello | Prepared | Ready | StartFailed | _OfAnswers | Heartbeat
_OfBuffered = Rejoined | Ended | Found
ToClient = Welcome | Refused | _OfBuffered | _OfAnswers | Done | Health | State
Work = tuple[GenerateRequest, ...] | HttpRequest

_KINDS: Final[dict[type[LmiError], FailureKind]] = {
    EngineDeadError: "dead",
    StoppingError: "stopping",
    UnavailableError: "unavailable",
    CancelledError: "cancelled",
    MovedError: "moved",
    DeadlineError: "deadline",
}
_ERRORS: Final[dict[str, type[LmiError]]] = {kind: error for error, kind in _KINDS.items()}


def failure_of(request_id: int, error: LmiError) -> Failure:
    """Return the message of a request's error."""
    if isinstance(error, RequestError):
        return Failure(request_id, "request", error.detail, error.field)
    if isinstance(error, HttpError):
        return Failure(request_id, "http", str(error), status=error.status)
    if isinstance(error, LateError):
        return Failure(request_id, "late", str(error), status=error.seconds)
    return Failure(request_id, _KINDS.get(type(error), "engine"), str(error))


def error_of(failure: Failure) -> LmiError:
    """Return the error of such a message."""
    if failure.kind == "request":
        return RequestError(failure.message, field=failure.field)
    if failure.kind == "http":
        error = HttpError(failure.status, failure.message)
        error.is_models = True
        return error
    if failure.kind == "late":
        return LateError(failure.message, failure.status)
    return _ERRORS.get(failure.kind, EngineError)(failure.message)
