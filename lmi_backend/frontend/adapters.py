"""Who may manage LoRA adapters, by any of the paths."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.lmi.body import manages_adapters
from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.model import Model
    from lmi_backend.generation import Chunk

_LOOKS: Final = ("LIST_ADAPTERS", "DESCRIBE_ADAPTER")
"""What changes nothing, and any client may send."""


def manage(exchange: Exchange, model: Model, body: dict[str, object]) -> Answer:
    """Send a request about adapters to their model; `form_for` makes the response.

    Raises:
        HttpError: it is for operators, and this client is none (403).
        UnavailableError: the model has gone.
    """
    if not exchange.is_operator and body.get("requestType") not in _LOOKS:
        raise _forbidden()
    return model.connection.manage(body)


def form_for(exchange: Exchange) -> HttpForm:
    """Return what makes the response of an answer about adapters."""
    return HttpForm() if exchange.is_operator else _WithoutFolders()


def check_bodies(exchange: Exchange, bodies: Iterable[str]) -> None:
    """Refuse bodies about adapters that go to Triton, whose answers are not ours to change.

    Raises:
        HttpError: there is one, and the client is no operator (403).
    """
    if not exchange.is_operator and any(map(manages_adapters, bodies)):
        raise _forbidden()


class _WithoutFolders(HttpForm):
    """Shows of an adapter's folder its name only: the others say where things are."""

    def __init__(self) -> None:
        super().__init__()
        self._whole = b""

    def write(self, chunks: list[Chunk]) -> bytes:
        self._whole += super().write(chunks)
        if not self.is_over:
            return b""
        body: dict[str, Any] = msgspec.json.decode(self._whole)
        for each in body.get("adapters", [body]):
            if "src" in each:
                each["src"] = PurePath(each["src"]).name
        return msgspec.json.encode(body)


class DoneForm(HttpForm):
    """Says in a sentence of vLLM's server that an adapter was loaded or unloaded."""

    def __init__(self, done: str) -> None:
        super().__init__()
        self._text = f"Success: {done} successfully."

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the sentence once the adapter is changed."""
        super().write(chunks)
        self.headers = {"content-type": "text/plain; charset=utf-8"}
        return self._text.encode() if self.is_over else b""


def _forbidden() -> HttpError:
    text = "adapters are managed with an operator's key (--api-keys), or, where no keys are used, "
    return HttpError(HTTPStatus.FORBIDDEN, f"{text}on a port of 127.0.0.1")
