"""Requests of Triton's `generate` and `generate_stream`, asked of the model without Triton.

A body means what it means to the HTTP port of Triton 24.10: what is an input of the model becomes a
tensor of its type, anything else a request parameter; the members of `parameters` stand for
themselves. Triton itself answers whatever is unusual, so that errors are in its words.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.errors import LmiError
from lmi_backend.frontend.bodies import aside
from lmi_backend.frontend.relay import answers_of, send_answer
from lmi_backend.frontend.triton_form import TritonForm
from lmi_backend.generation import HttpRequest
from lmi_backend.names import check_name
from lmi_backend.repository.variants import MAIN
from lmi_backend.schema.request import read_request
from lmi_backend.schema.tracing import take_trace, with_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models
    from lmi_backend.frontend.triton_body import Body
    from lmi_backend.frontend.triton_paths import Path
    from lmi_backend.repository.tensors import Tensor
    from lmi_backend.schema.reply import ParsedRequest

_NAMED: Final = "parameters"
_INT_32, _INT_64 = 1 << 31, 1 << 63


class Asked(NamedTuple):
    """A body as the model gets it from Triton."""

    inputs: dict[str, list[Any]]
    """Values of each tensor, flat."""
    parameters: dict[str, object]
    request_id: str


class Generate:
    """Answers what it understands."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def answer(self, exchange: Exchange, path: Path, body: Body, size: int = 0) -> bool:
        """Answer a request with such a body; return whether it was for us.

        Args:
            exchange: the request.
            path: its path.
            body: its members.
            size: bytes of the body.

        Raises:
            UnavailableError: the model has gone, or as for `Models.reach`.
            ClientGoneError: the client left while it waited for the model.
        """
        model = await self._models.reach(exchange, path.model)
        if model is None or model.name != path.model:
            return False
        version = model.info.triton_version
        if not version or (path.version or version) != version:
            return False
        if (asked := await aside(size, read_generate, body)) is None:
            return False
        trace = take_trace(asked.parameters) or take_trace(dict(exchange.headers))
        parsed = await aside(size, _parsed, asked, model)
        if parsed is None or not isinstance(parsed.work, HttpRequest | tuple):
            return False
        named = {"model_name": model.name, "model_version": version}
        if asked.request_id:
            named["id"] = asked.request_id
        form = TritonForm(parsed.reply, answers_of(parsed.work), named, is_stream=path.is_stream)
        work = with_trace(parsed.work, trace)
        answer = model.connection.submit(work, exchange.tenant or parsed.tenant)
        await send_answer(exchange, answer, form, form.refusal)
        return True


def _parsed(asked: Asked, model: Model) -> ParsedRequest | None:
    try:
        check_name("id", asked.request_id)
        return read_request([asked.inputs], asked.parameters, model.context)
    except LmiError:
        # The stub says the same in an answer of Triton's, and counts it.
        return None


def read_generate(body: Body) -> Asked | None:
    """Return what Triton makes of a body; None where that is an error, or unusual."""
    try:
        return _read(body)
    except (ValueError, OverflowError):
        return None


def _read(body: Body) -> Asked:
    _demand(isinstance(body.get("id", ""), str))
    asked = Asked({}, {}, body.get("id", ""))
    nested = body.get(_NAMED, {})
    _demand(isinstance(nested, dict))
    for name, value in (*((n, v) for n, v in body.items() if n != _NAMED), *nested.items()):
        if (tensor := _TENSORS.get(name)) is None:
            asked.parameters[name] = _parameter(name, value)
        else:
            _demand(name not in asked.inputs)
            asked.inputs[name] = _values(tensor, value)
    return asked


def _demand(is_so: object) -> None:
    if not is_so:
        raise ValueError


def _parameter(name: str, value: Any) -> object:
    # Triton ends a string at a NUL, has names of its own, and sees to a timeout with the model.
    _demand("\0" not in name and not name.startswith("triton_") and name != "timeout")
    match value:
        case str():
            _demand("\0" not in value)
        case int():
            _demand(-_INT_64 <= value < _INT_64)
        case float():
            _demand(math.isfinite(value))
        case _:
            raise ValueError
    return value


def _values(tensor: Tensor, value: Any) -> list[Any]:
    items = value if isinstance(value, list) else [value]
    _demand(items and (len(items) == 1 or tensor.dims == -1))
    return [_READERS[tensor.data_type](item) for item in items]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _string(value: Any) -> str:
    _demand(isinstance(value, str))
    return str(value)


def _bool(value: Any) -> bool:
    _demand(isinstance(value, bool))
    return bool(value)


def _integer(lowest: int, beyond: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        _demand(type(value) is int and lowest <= value < beyond)
        return int(value)

    return read


def _float(value: Any) -> float:
    _demand(_is_number(value))
    read: float = struct.unpack("f", struct.pack("f", value))[0]
    return read


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "TYPE_STRING": _string,
    "TYPE_BOOL": _bool,
    "TYPE_INT32": _integer(-_INT_32, _INT_32),
    "TYPE_UINT64": _integer(0, 2 * _INT_64),
    "TYPE_FP32": _float,
}
_TENSORS: Final = {tensor.name: tensor for tensor in MAIN.inputs}
