"""Who may manage LoRA adapters, by any of the paths."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.lmi import as_management
from lmi_backend.clients.openai import HttpForm, WholeForm, openai_failure
from lmi_backend.clients.request import manages_adapters
from lmi_backend.clients.spec import INPLACE, AdapterChange, Read
from lmi_backend.errors import LMI_ERROR, HttpError, LmiError
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmi_backend.clients.spec import ErrorResponse
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model


_VLLM_400: Final = (HTTPStatus.CONFLICT, LMI_ERROR)
"""Statuses of LMI's for which vLLM's server has 400."""
_LOOKS: Final = ("LIST_ADAPTERS", "DESCRIBE_ADAPTER")
"""What changes nothing, and any client may send."""


def manage(exchange: Exchange, model: Model, body: dict[str, object]) -> Answer:
    """Send a request about adapters to their model; `form_for` makes the response.

    Raises:
        HttpError: it is for operators, and this client is none (403).
        UnavailableError: the model is down.
    """
    if not exchange.is_operator and body.get("requestType") not in _LOOKS:
        raise _forbidden()
    return model.connection.manage(body)


def change_of(exchange: Exchange, body: dict[str, Any]) -> Read:
    form = HttpForm() if exchange.is_operator else WholeForm(_without_folders)
    write = exchange.spec.failure
    return Read(AdapterChange(body), form, failure=lambda error: write(as_management(error)))


def load_of(body: dict[str, Any]) -> Read:
    """Return what a request to load an adapter wants, as vLLM has it. Raises HttpError (400)."""
    name, folder, replaces = (body.get(each) for each in ("lora_name", "lora_path", INPLACE))
    if not name or not folder:
        raise _wrong("Both 'lora_name' and 'lora_path' must be provided.")
    if replaces and not str(folder).startswith("/"):
        text = f"lora_path {printable(repr(folder))}: accepted with {INPLACE}: an absolute path"
        raise _wrong(text)
    order = {"requestType": "REGISTER_ADAPTER", "name": name, "src": folder}
    change = AdapterChange(order if replaces is None else order | {INPLACE: replaces})
    return Read(change, _answer(f"LoRA adapter '{name}' added"), failure=_vllm_failure)


def unload_of(body: dict[str, Any]) -> Read:
    """Return what a request to unload an adapter wants; raises as `load_of` does."""
    if not (name := body.get("lora_name")):
        raise _wrong("'lora_name' needs to be provided to unload a adapter.")
    change = AdapterChange({"requestType": "UNREGISTER_ADAPTER", "name": name})
    return Read(change, _answer(f"LoRA adapter '{name}' removed"), failure=_vllm_failure)


def _vllm_failure(error: LmiError) -> ErrorResponse:
    """Return an error as vLLM's server writes those of its requests about adapters."""
    if isinstance(error, HttpError) and error.status in _VLLM_400:
        error = _wrong(str(error))
    return openai_failure(error)


def _wrong(text: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, text)


def check_bodies(exchange: Exchange, bodies: Iterable[str]) -> None:
    if not exchange.is_operator and any(map(manages_adapters, bodies)):
        raise _forbidden()


def _without_folders(data: bytes) -> bytes:
    """Return an answer with the names alone of folders, which say where things are."""
    body: dict[str, Any] = msgspec.json.decode(data)
    for each in body.get("adapters", [body]):
        if "src" in each:
            each["src"] = PurePath(each["src"]).name
    return msgspec.json.encode(body)


def _answer(done: str) -> WholeForm:
    """Return what says in a sentence of vLLM's server what was done."""
    text = f"Success: {done} successfully.".encode()
    return WholeForm(lambda _: text, "text/plain; charset=utf-8")


def _forbidden() -> HttpError:
    text = "adapters are managed with an operator's key (--api-keys), or, where no keys are used, "
    return HttpError(HTTPStatus.FORBIDDEN, f"{text}on a port of 127.0.0.1")
