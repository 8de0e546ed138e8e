"""Answer management requests in a thread of their own: a file system may take its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.errors import UnavailableError
from lmi_backend.serving.faults import refuse
from lmi_backend.threads import QueueThreads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.serving.lora import LoraManager
    from lmi_backend.serving.request_state import Sink
    from lmi_backend.serving.service import Service

_MOST_WAITING: Final = 100


class AdapterManagement:
    """Hands management requests to the adapters of a model, one after the other, in a thread."""

    def __init__(self, lora_manager: LoraManager, service: Service) -> None:
        self._lora_manager, self._service = lora_manager, service
        self._num_waiting = 0
        self.threads = QueueThreads[tuple["Mapping[str, object]", "Sink"]](
            lambda request: self._answer(*request), "lmi-manage"
        )
        """What has to be started, and stopped."""

    def take(self, body: Mapping[str, object], sink: Sink) -> None:
        """Take a request; its answer, or its error, goes to the sink. Never blocks.

        Raises:
            UnavailableError: too many wait; the sink is not used.
        """
        if self._num_waiting >= _MOST_WAITING:
            raise UnavailableError(f"{_MOST_WAITING} management requests wait")
        self._num_waiting += 1
        self.threads.put((body, sink))

    def _answer(self, body: Mapping[str, object], sink: Sink) -> None:
        self._num_waiting -= 1
        try:
            self._lora_manager.handle(body, self._service, sink)
        except Exception as error:  # noqa: BLE001  it is this request's failure
            refuse(error, sink, self._service.refused, "a management request cannot be answered")
