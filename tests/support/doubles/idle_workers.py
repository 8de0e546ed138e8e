"""Workers of a `Service` that take requests and do nothing; the test says what they answer."""

from typing import Any

from lmi_backend.engine_config import Identity
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import Frame
from lmi_backend.serving.workers import Workers


class IdleWorkers(Workers):
    """See `Workers`."""

    name = "model/0"

    identity = Identity()

    def start(self, listener: Any) -> Any:
        return None

    def capacity(self) -> int:
        return 1 << 30

    def claim(self, width: int, choose: Any) -> tuple[int, Any]:
        return 0, self

    def send_frame(self, frame: Frame) -> None:
        pass

    def abort(self, index: int, numbers: list[int]) -> None:
        pass

    def health(self) -> msg.Health:
        return msg.Health(is_ready=True)

    def close(self) -> None:
        pass
