"""A model's end of the connection that a front end has to it, without a socket."""

from typing import Any

from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.frontend.answer import Answer, Unread
from lmi_backend.frontend.connection import ModelConnection
from lmi_backend.frontend.outages import Outages
from lmi_backend.generation import GenerateRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode

WORK = (GenerateRequest("a"),)


class Socket:
    """A model's end of its connection."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.sent: list[Any] = []
        self.is_closed = False
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.FromClient, limit=1 << 30)
        protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        self.sent += self._decoder.feed(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)

    abort = close

    def say(self, *messages: msg.ToClient) -> None:
        self.protocol.data_received(encode(messages))


class Model:
    """A model, and the connection to it.

    Args:
        outages: where its answers wait when it has died, and resume.
        info: what it says of itself (`ModelInfo`).
    """

    def __init__(
        self,
        unread: Unread | None = None,
        outages: Outages | None = None,
        **info: Any,
    ) -> None:
        self.lost: list[list[Answer]] = []
        self.outages = outages
        self.connection = ModelConnection(self.welcomed, self._lose, unread)
        self.socket = Socket(self.connection)
        self.sent, self.say = self.socket.sent, self.socket.say
        self.say(self.welcome("m", **info))

    def welcomed(self, message: msg.Welcome) -> None:
        if message.model.name == "bad":
            raise RuntimeError
        if self.outages is not None:
            self.outages.resume(self.connection)

    def _lose(self, answers: list[Answer]) -> None:
        self.lost.append(answers)
        if self.outages is not None:
            self.outages.begin(answers, self.connection.model)

    def die(self) -> None:
        self.socket.close()

    def welcome(self, name: str, **info: Any) -> msg.Welcome:
        return msg.Welcome(Context(), ModelInfo(name=name, **info))

    def submit(self, work: msg.Work = WORK, tenant: str = "") -> Answer:
        return self.connection.submit(work, tenant)

    def aborted(self) -> list[int]:
        return [number for each in self.sent if isinstance(each, msg.Abort) for number in each.ids]
