"""Restart a worker without losing its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc import messages as msg
from lmi_backend.threads import wait_until

if TYPE_CHECKING:
    from lmi_backend.pool.pool import Pool
    from lmi_backend.serving.service import Service


class Renewal:
    """Restarts the workers of a model, one at a time.

    Args:
        load_seconds: time that a worker may take to be ready.
    """

    def __init__(self, service: Service, pool: Pool, load_seconds: float) -> None:
        self._service, self._pool, self._load_seconds = service, pool, load_seconds

    def renew(self, index: int, seconds: float) -> msg.Renewed:
        """Resume the requests of a worker elsewhere, and restart the worker; blocks.

        Args:
            seconds: time to finish for requests that cannot resume.
        """
        count = len(self._pool.stats())
        if not 0 <= index < count:
            return msg.Renewed(problem=f"there is no worker {index}; accepted: 0 to {count - 1}")
        slot = self._pool.slots[index]
        if (worker := slot.retire()) is None:
            return msg.Renewed(problem=slot.problem or "another has requested it")
        reason = EngineDeadError(f"worker {index} is restarted, and waits no longer")
        wait_until(lambda: not self._service.move_from(index, reason), seconds)
        cut = self._service.move_from(index, reason, ends=True)
        worker.request_stop()
        wait_until(lambda: slot.is_open, self._load_seconds)
        return msg.Renewed(cut, slot.problem)
