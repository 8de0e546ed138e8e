"""Who may manage LoRA adapters, on whatever road the order comes."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.errors import HttpError
from lmi_backend.frontend.http_form import HttpForm
from lmi_backend.schema.body import manages_adapters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Model
    from lmi_backend.generation import Chunk

_FORBIDDEN: Final = 403
_LOOKS: Final = ("LIST_ADAPTERS", "DESCRIBE_ADAPTER")
"""What changes nothing, and any client may send."""


def manage(exchange: Exchange, model: Model, order: dict[str, object]) -> Answer:
    """Send a request about adapters to their model; `form_for` makes the response.

    Raises:
        HttpError: it is for operators, and this client is none (403).
        UnavailableError: the model has gone.
    """
    if not exchange.is_operator and order.get("requestType") not in _LOOKS:
        raise _forbidden()
    return model.connection.manage(order)


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
        said: dict[str, Any] = msgspec.json.decode(self._whole)
        for each in said.get("adapters", [said]):
            if "src" in each:
                each["src"] = PurePath(each["src"]).name
        return msgspec.json.encode(said)


def _forbidden() -> HttpError:
    text = "adapters are managed with an operator's key (--api-keys), or, where no keys are used, "
    return HttpError(_FORBIDDEN, f"{text}on a port of 127.0.0.1")
