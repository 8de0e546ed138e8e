"""Who generates for a service: a pool of workers, or another model's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lmi_backend.ipc import messages as msg
    from lmi_backend.ipc.engine import Capabilities
    from lmi_backend.pool.pool import Listener
    from lmi_backend.pool.rank_group import WorkerStats


class Workers(Protocol):
    """Who generates: a `Pool`, or another model's, through its endpoint."""

    def start(self, listener: Listener) -> Capabilities:
        """Start; from now on the listener hears what workers say."""
        ...

    def claim(self, width: int) -> tuple[int, SendsFrames]:
        """See `Pool.claim`."""
        ...

    def capacity(self) -> int:
        """Return how many answers the workers that are ready generate at once."""
        ...

    def abort(self, index: int, numbers: list[int]) -> None:
        """See `Pool.abort`."""
        ...

    def done(self, index: int, width: int) -> None:
        """See `Pool.done`."""
        ...

    def health(self) -> msg.Health:
        """Tell whether a request would be taken, and if not, why."""
        ...

    def figures(self) -> list[WorkerStats]:
        """Return the figures of each worker."""
        ...

    def close(self) -> None:
        """End it in order."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class SendsFrames(Protocol):
    """One worker, or who speaks for it."""

    @property
    def name(self) -> str:
        """Its name in logs."""
        ...

    def send_frame(self, frame: bytes) -> None:
        """Send packed messages. Raises ConnectionLostError."""
        ...
