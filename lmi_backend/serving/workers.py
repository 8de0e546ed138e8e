"""What a service sends its requests to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.engine_config import Identity
    from lmi_backend.ipc import messages as msg
    from lmi_backend.ipc.engine import Capabilities
    from lmi_backend.ipc.frames import Frame
    from lmi_backend.pool.pool import Listener
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.pool.slot import Slot


class Workers(Protocol):
    """What generates: a `Pool`, or that of another model, through its endpoint."""

    def start(self, listener: Listener) -> Capabilities:
        """Start; from now on the listener gets the messages of the workers."""

    def claim(
        self, width: int, choose: Callable[[Sequence[Slot]], Slot | None]
    ) -> tuple[int, SendsFrames]:
        """Have a worker chosen for `width` more answers, until `done`.

        Returns its index and itself. Raises UnavailableError: no worker is ready.
        """

    def capacity(self) -> int:
        """Return how many answers the workers that are ready generate at once."""

    def abort(self, index: int, request_ids: list[int]) -> None:
        """Tell a worker that nobody waits for some requests."""

    def done(self, index: int, width: int) -> None:
        """Take back the places of `width` finished answers."""
        return

    def unwanted_capacity(self) -> int:
        """Return how many more answers there could be at once if every worker ran."""
        return 0

    def note_queue(self, waiting: int, refused: str = "") -> None:
        """Learn how many answers wait for a worker, or why a request was refused; never blocks."""
        return

    def ready_in(self) -> float:
        """Return the seconds in which a worker is expected to be ready; 0 where one is."""

    def health(self) -> msg.Health:
        """Return whether a request would be admitted, and if not, the reason."""

    def stats(self) -> list[WorkerStats]:
        """Return the stats of each worker."""
        return []

    def close(self) -> None:
        """End it in order."""


class SendsFrames(Protocol):
    """One worker, or another model that stands for its workers."""

    @property
    def name(self) -> str:
        """Its name in logs."""

    @property
    def identity(self) -> Identity:
        """What its answers depend on."""

    def send_frame(self, frame: Frame) -> None:
        """Send a packed message.

        Raises:
            NotSentError: they cannot be sent, and nothing of them was; `claim` knows it.
            ConnectionLostError: they cannot be sent.
        """
