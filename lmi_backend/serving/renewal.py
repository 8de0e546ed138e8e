"""Start a worker anew without losing what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.waiting import wait_until

if TYPE_CHECKING:
    from lmi_backend.pool.pool import Pool
    from lmi_backend.serving.service import Service


class Renewal:
    """Starts the workers of a model anew, one at a time.

    Args:
        load_seconds: a worker may take to be ready.
    """

    def __init__(self, service: Service, pool: Pool, load_seconds: float) -> None:
        self._service, self._pool, self._load_seconds = service, pool, load_seconds

    def renew(self, index: int, seconds: float) -> msg.Renewed:
        """Let the requests of a worker go on elsewhere, and start it anew; blocks.

        Args:
            seconds: for those that cannot go on to end.
        """
        count = len(self._pool.stats())
        if not 0 <= index < count:
            return msg.Renewed(trouble=f"there is no worker {index}; accepted: 0 to {count - 1}")
        slot = self._pool.slot(index)
        if not slot.is_open or slot.worker is None:
            return msg.Renewed(trouble=slot.trouble or "another has asked for it")
        why = EngineDeadError(f"worker {index} is started anew, and waits no longer")
        worker, slot.is_retiring = slot.worker, True
        wait_until(lambda: not self._service.move_from(index, why), seconds)
        cut = self._service.move_from(index, why, ends=True)
        worker.ask_to_end()
        wait_until(lambda: slot.is_open, self._load_seconds)
        return msg.Renewed(cut, slot.trouble)
