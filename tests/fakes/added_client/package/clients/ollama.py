"""What Ollama's clients are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai import CHATS, HttpForm
from lmi_backend.clients.spec import (
    READ,
    ClientSpec,
    Ending,
    ErrorResponse,
    Path,
    Read,
    failure,
    message_of,
    status_of,
)
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpRequest

if TYPE_CHECKING:
    from lmi_backend.engine_config import Context
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

_OPTIONS: Final = {"num_predict": "max_tokens", "temperature": "temperature", "seed": "seed"}


def read_chat(body: dict[str, Any], _: Context) -> Read:
    """Read a chat. Raises RequestError: it is wrong."""
    if not isinstance(body.get("messages"), list):
        raise RequestError("is missing, or is no list", field="messages")
    named = {_OPTIONS[n]: v for n, v in body.get("options", {}).items() if n in _OPTIONS}
    asked = {"model": body.get("model"), "messages": body["messages"], "stream": True, **named}
    return Read(HttpRequest(CHATS, json.dumps(asked).encode()), ChatForm(str(body.get("model"))))


class ChatForm(HttpForm):
    """A line of JSON for each event of OpenAI's."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model, self._rest = model, b""

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `HttpForm`."""
        *events, self._rest = (self._rest + super().write(chunks)).split(b"\n\n")
        self.headers = {"content-type": "application/x-ndjson"}
        data = [each.removeprefix(b"data: ") for each in events]
        return b"".join(self._line(json.loads(each)) for each in data if each.startswith(b"{"))

    def failure(self, error: LmiError) -> Ending:
        return Ending(_dump({"error": message_of(error)}) + b"\n", is_end=True)

    def _line(self, event: dict[str, Any]) -> bytes:
        (choice,) = event["choices"]
        message = {"role": "assistant", "content": choice["delta"].get("content", "")}
        is_done = choice["finish_reason"] is not None
        return _dump({"model": self._model, "message": message, "done": is_done}) + b"\n"


def ollama_failure(error: LmiError) -> ErrorResponse:
    return failure(status_of(error), {"error": message_of(error)}, error)


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


SPEC: Final = ClientSpec(
    name="ollama",
    title="Ollama",
    failure=ollama_failure,
    form=HttpForm,
    paths=(Path("/api/chat", READ, takes_place=True, can_resume=True, read=read_chat),),
)
