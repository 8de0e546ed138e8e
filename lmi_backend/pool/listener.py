"""Who hears the workers of a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lmi_backend.errors import EngineDeadError
    from lmi_backend.ipc import messages as msg


class Listener(Protocol):
    """Gets what workers send; called from the threads of the pool."""

    def on_messages(self, messages: list[msg.FromWorker]) -> None:
        """Take what one engine step, or several, brought."""

    def on_death(self, index: int, error: EngineDeadError) -> None:
        """Learn that every request of a worker is lost."""

    def on_ready(self) -> None:
        """Learn that one more worker takes requests, or that one never will."""
