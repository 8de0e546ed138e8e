"""The contract every engine adapter fulfils.

Deltas are increments. Exactly one has a finish reason and it is the last. One request's failure
harms no other. When the engine dies every open stream raises `EngineDeadError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from lmi_backend.generation import Delta, GenerateRequest, HttpChunk, HttpRequest
    from lmi_backend.ipc.engine import Capabilities, EngineStats


class Rank(Protocol):
    """A process of an engine. Built from an `EngineConfig`; nothing heavy before `start`.

    Rank 0 is an `Engine`; others work for it, in ways the engine's library has.
    """

    async def start(self) -> Capabilities:
        """Load the model.

        Raises:
            ConfigurationError: an argument is refused.
        """
        ...

    def stats(self) -> EngineStats:
        """Return the load now; cheap."""
        ...

    async def check_health(self) -> None:
        """Raise EngineDeadError if it cannot serve any more."""
        ...

    async def close(self) -> None:
        """Free everything; may be called twice."""
        ...


class Engine(Rank, Protocol):
    """An engine that takes requests."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """Generate; closing the generator aborts the request.

        Raises:
            RequestError: the request is wrong.
            EngineError: the engine failed on this request.
            EngineDeadError: the engine is dead.
        """
        ...


class Sink(Protocol):
    """Takes the deltas of a request."""

    def take(self, delta: Delta) -> None:
        """Take a delta."""
        ...

    def may_wait(self, give: Callable[[], None]) -> bool:
        """Tell whether tokens may stay where they are until `give` is called, which hands them on.

        So a delta is made of many at once. If not, or before, they are handed on by `take`.
        """
        ...


class DirectEngine(Protocol):
    """An engine that can do without a generator, which costs a wake-up of a task for each token."""

    async def hand_on(self, request: GenerateRequest, sink: Sink) -> None:
        """Generate, and let each delta be taken; cancelling aborts the request.

        Raises what `Engine.generate` raises.
        """
        ...


class HttpEngine(Protocol):
    """An engine that reads whole HTTP bodies itself, such as OpenAI's."""

    def call(self, call: HttpRequest) -> AsyncGenerator[HttpChunk, None]:
        """Answer; closing the generator aborts. Raises what `Engine.generate` raises."""
        ...


class TemplateEngine(Engine, Protocol):
    """An engine that knows its model's chat template, and has no server of its own."""

    async def chat_prompt(
        self, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> Sequence[int]:
        """Return the token ids of a chat; `options` are those of `apply_chat_template`.

        Raises:
            RequestError: the model has no template, or it refuses the messages.
        """
        ...


class LoraEngine(Protocol):
    """An engine that takes LoRA adapters while it serves."""

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        """Make an adapter known, or replace it.

        Raises:
            RequestError: the engine cannot load it.
        """
        ...

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter; requests that use it run to their end."""
        ...
