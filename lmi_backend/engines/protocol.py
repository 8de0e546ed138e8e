"""The contract of an engine implementation.

Deltas are increments. The last delta of an answer, and only that one, has a finish reason. A
request that fails harms no other. When the engine dies, every open request raises
`EngineDeadError`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import RequestError
from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats

tenant: Final[ContextVar[str]] = ContextVar("tenant", default="")
"""On whose behalf the request of this task is."""


class Deferring(Protocol):
    """Lets an engine keep new tokens for a while."""

    def defer(self, flush: Callable[[], None], num_tokens: int) -> bool:
        """Return whether new tokens may stay with the engine for now.

        An engine that can make one chunk of many tokens calls this before it makes any.

        Args:
            flush: called when it is time; it hands the tokens to `take`.
            num_tokens: that would stay.

        Returns:
            Whether the tokens may stay. If not, they go to `take` at once.
        """
        ...


class DeltaSink(Deferring, Protocol):
    """Takes the deltas of a request."""

    def take(self, delta: Delta) -> None:
        """Take a delta."""
        ...


class ChunkSink(Deferring, Protocol):
    """Takes the chunks of the answer to an HTTP body."""

    def take(self, chunk: HttpChunk) -> None:
        """Take a chunk."""
        ...

    async def drain(self) -> None:
        """Wait while many bytes of answers have not been read.

        Who makes chunks faster than any reader can take them calls this after each.
        """
        ...


class Rank:
    """One process of an engine. Rank 0 is an `Engine`; the others are its followers.

    Nothing heavy happens before `start`.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    async def prepare(self) -> None:
        """Do what `start` begins with and takes no memory of a device, such as imports.

        `start` follows later, or never.

        Raises:
            ConfigurationError: an argument is refused.
        """

    async def start(self) -> Capabilities:
        """Load the model, or this rank's part of it.

        Raises:
            ConfigurationError: an argument is refused.
        """
        raise NotImplementedError

    def stats(self) -> EngineStats:
        """Return the load now; cheap. A follower has none of its own."""
        return EngineStats()

    async def check_health(self) -> None:
        """Raise EngineDeadError if this rank cannot serve any more."""

    async def close(self) -> None:
        """Free everything; may be called twice."""


class Engine(Rank):
    """An engine that takes requests. What it does not override, it refuses."""

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        """Generate, and hand each delta to the sink; cancelling aborts the request.

        If the request has a `continuation`, an engine whose deltas carry ids
        (`EngineConfig.sends_ids`) resumes from them, and gives only what follows.

        Raises:
            RequestError: the request is wrong.
            EngineError: the engine failed on this request.
            EngineDeadError: the engine is dead.
        """
        raise NotImplementedError

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        """Answer a whole HTTP body, such as OpenAI's; cancelling aborts the request.

        One that resumes is written from its beginning: what its client has is dropped after it.

        Raises:
            RequestError: this engine reads no such bodies.
            EngineError: the engine failed on this request.
            EngineDeadError: the engine is dead.
        """
        problem = "holds an OpenAI body, which this model's engine does not read"
        raise RequestError(problem, field="request", accepted="an LMI body, with inputs")

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        """Make a LoRA adapter known, or replace it by what its files hold now.

        An engine that has started knows none. After an error all is as before.

        Args:
            preload: load its weights now. Otherwise its first request does, which fails alone if
                they cannot be loaded.
            pin: keep them loaded.

        Raises:
            RequestError: the engine takes no adapters, or cannot load this one.
        """
        raise RequestError("cannot be loaded by this model's engine", field="adapter")

    async def unload_adapter(self, name: str) -> None:
        """Forget a LoRA adapter; requests that use it run to their end.

        Raises:
            RequestError: the engine takes no adapters.
        """
        raise RequestError("cannot be loaded by this model's engine", field="adapter")
