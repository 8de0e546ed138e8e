"""Bodies of Triton's V2 protocol: read by their schema, and written anew from what was read.

Triton 24.10 ends at some bodies that its own schema allows (`classification`) or that nest deeply,
so what it gets holds nothing but the members below. Of two members of one name the last counts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from lmi_backend.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BAD_REQUEST: Final = 400
_LARGEST_INT: Final = (1 << 64) - 1
_LEAST_INT: Final = -(1 << 63)
_MOST_TEXTS: Final = 50_000
"""In a binary tensor."""
MOST_ELEMENTS: Final = 250_000
"""In the JSON of a large inference request: about 20 ms of the event loop."""
_LEVELS: Final = 8
"""Of lists in the `data` of a tensor."""
_REQUEST: Final = "request"
"""The input that holds a whole body, which may be one about adapters."""
_OPENING: Final = re.compile(rb"[\[ \t\r\n]*")

_Name = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
_Scalar = bool | int | float | str | None
_Scalars = list[_Scalar | list[_Scalar]]
_Members = Annotated[dict[_Name, _Scalar | _Scalars], Meta(max_length=4096)]
Body = dict[str, Any]
"""A body of `generate`: scalars, flat lists of them, and `parameters` that hold the same."""
_Body = Annotated[dict[_Name, _Scalar | _Scalars | _Members], Meta(max_length=4096)]
_Length = Annotated[int, Meta(ge=0, lt=1 << 31)]


class _InputParameters(msgspec.Struct, forbid_unknown_fields=True):
    binary_data_size: _Length | None = None


class _OutputParameters(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    binary_data: bool | None = None


class _Input(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    datatype: Literal[
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
        "FP32", "FP64", "BF16", "BYTES",
    ]  # fmt: skip
    shape: Annotated[list[_Length], Meta(min_length=1, max_length=16)]
    parameters: _InputParameters = msgspec.field(default_factory=_InputParameters)
    data: msgspec.Raw = msgspec.Raw()


class _Output(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    parameters: _OutputParameters = msgspec.field(default_factory=_OutputParameters)


class _Inference(msgspec.Struct, forbid_unknown_fields=True):
    inputs: Annotated[list[_Input], Meta(max_length=1024)]
    id: Annotated[str, Meta(pattern=r"^[^\x00]*\Z")] = ""
    parameters: Annotated[dict[_Name, bool | int | float | str], Meta(max_length=4096)] = {}
    outputs: Annotated[list[_Output], Meta(max_length=1024)] = []


class Written(NamedTuple):
    """A body for Triton."""

    data: bytes
    json_length: int | None = None
    """Bytes before the binary tensors, where there may be some."""
    texts: tuple[str, ...] = ()
    """What the client gave as whole bodies."""


def _whole(bits: int) -> Any:
    most = (1 << (bits - 1)) - 1
    return Annotated[int, Meta(ge=-most - 1, le=most)]


_KINDS: Final[dict[str, tuple[Any, int]]] = {
    "BOOL": (bool, 1),
    **{f"INT{bits}": (_whole(bits), bits // 8) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": (Annotated[int, Meta(ge=0)], bits // 8) for bits in (8, 16, 32, 64)},
    "FP32": (float, 4),
    "FP64": (float, 8),
    "BYTES": (str, 0),
    "FP16": (None, 2),
    "BF16": (None, 2),
}
"""Of each data type, how JSON holds an element, and its bytes where all have the same number."""
_MOST: Final = {name: (1 << 8 * size) - 1 for name, (_, size) in _KINDS.items() if name[0] == "U"}
_inference: Final = msgspec.json.Decoder(_Inference)
_generate: Final = msgspec.json.Decoder(_Body)


def read_generate_body(data: bytes) -> Body:
    """Return the members of a body of `generate`.

    Raises:
        HttpError: it is not one (400).
    """
    body: Body = _read(_generate, data)
    for members in (body, *(each for each in body.values() if isinstance(each, dict))):
        for name, value in members.items():
            _check_name(name)
            flat = [one for each in _listed(value) for one in _listed(each)]
            for each in flat:
                _check_number(each, name)
            if isinstance(value, list):
                members[name] = flat
    return body


def write_generate_body(body: Body, tenant: str) -> bytes:
    """Return a body for Triton; a tenant that is known counts, whatever the body says."""
    if tenant:
        nested = body.get("parameters")
        if isinstance(nested, dict):
            nested.pop("tenant", None)
        body["tenant"] = tenant
    return msgspec.json.encode(body)


def texts_of(body: Body) -> tuple[str, ...]:
    """Return what a body of `generate` holds of whole bodies."""
    nested = body.get("parameters")
    holders = (body, nested) if isinstance(nested, dict) else (body,)
    found = [each for holder in holders for each in _listed(holder.get(_REQUEST))]
    return tuple(each for each in found if isinstance(each, str))


def write_inference(data: bytes, json_length: int | None, tenant: str) -> Written:
    """Return an inference request for Triton.

    Args:
        data: the client's body.
        json_length: bytes before the binary tensors; None where all is JSON.
        tenant: counts where it is known, whatever the body says.

    Raises:
        HttpError: the body is not one (400).
    """
    head = data if json_length is None else data[:json_length]
    tail = memoryview(data)[len(head) :]
    read = _read(_inference, head)
    _check_inference(read)
    sizes = [each.parameters.binary_data_size for each in read.inputs]
    given = sum(size or 0 for size in sizes)
    if given != len(tail) or (json_length is None and any(size is not None for size in sizes)):
        text = f"the binary_data_size of all inputs is {given} bytes, and {len(tail)} follow the"
        raise _refusal(f"{text} JSON (Inference-Header-Content-Length)")
    texts: list[str] = []
    begin = 0
    inputs = []
    for each, size in zip(read.inputs, sizes, strict=True):
        part = tail[begin : begin + (size or 0)]
        begin += len(part)
        written, values = _written(each, part)
        inputs.append(written)
        if each.name == _REQUEST:
            texts += values
    body: dict[str, Any] = {"inputs": inputs}
    if read.id:
        body["id"] = read.id
    if parameters := read.parameters | ({"tenant": tenant} if tenant else {}):
        body["parameters"] = parameters
    if read.outputs:
        body["outputs"] = read.outputs
    head = msgspec.json.encode(body)
    length = None if json_length is None else len(head)
    return Written(b"".join((head, tail)), length, tuple(texts))


def name_raw(data: bytes, name: str, tenant: str) -> Written:
    """Return a request for Triton that is whole the element of an input, and names a tenant."""
    size = len(data) + 4
    body = {
        "inputs": [
            {
                "name": name,
                "datatype": "BYTES",
                "shape": [1],
                "parameters": {"binary_data_size": size},
            }
        ],
        "parameters": {"binary_data_output": True, "tenant": tenant},
    }
    head = msgspec.json.encode(body)
    return Written(b"".join((head, len(data).to_bytes(4, "little"), data)), len(head))


def _read(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _refusal(f"the body is not what Triton's protocol has: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise _refusal("the body is nested too deeply") from error


def _check_inference(read: _Inference) -> None:
    names = [each.name for each in read.inputs]
    if len(set(names)) < len(names):
        raise _refusal("two inputs have one name")
    for name, value in read.parameters.items():
        _check_name(name)
        _check_number(value, name)
        if isinstance(value, str) and "\0" in value:
            raise _refusal(f"parameter {name!r} holds a null character")


def _check_name(name: str) -> None:
    """Refuse parameters that make Triton do something else than to ask the model."""
    if name == "classification" or name.startswith("shared_memory"):
        raise _refusal(f"{name!r} is not accepted on this port")


def _check_number(value: object, name: str) -> None:
    if isinstance(value, int) and not _LEAST_INT <= value <= _LARGEST_INT:
        raise _refusal(f"{name!r} has a number that does not fit in 64 bits")


def _written(given: _Input, part: memoryview) -> tuple[dict[str, Any], Iterable[str]]:
    """Return an input as Triton gets it, and the texts in it."""
    size, count = given.parameters.binary_data_size, prod(given.shape)
    written: dict[str, Any] = {"name": given.name, "datatype": given.datatype, "shape": given.shape}
    raw = bytes(given.data)
    if (size is None) != bool(raw):
        raise _refusal(f"input {given.name!r} needs either data or binary_data_size")
    if size is None:
        values = _values(given, raw)
        if len(values) != count:
            text = f"input {given.name!r} has {len(values)} elements, and its shape {count}"
            raise _refusal(text)
        return written | {"data": values}, values if given.datatype == "BYTES" else ()
    element = _KINDS[given.datatype][1]
    texts = () if element else _texts(given, part, count)
    if element and len(part) != count * element:
        raise _refusal(f"input {given.name!r} has {len(part)} bytes, and its shape another number")
    return written | {"parameters": {"binary_data_size": size}}, texts


def _values(given: _Input, raw: bytes) -> list[Any]:
    """Return the elements of a tensor, flat."""
    opening = _OPENING.match(raw)
    levels = opening[0].count(b"[") if opening else 0
    if not 0 < levels <= _LEVELS:
        raise _refusal(
            f"the data of input {given.name!r}: accepted: lists of 1 to {_LEVELS} levels"
        )
    if _KINDS[given.datatype][0] is None:
        raise _refusal(f"the data of input {given.name!r}: accepted: binary for {given.datatype}")
    values: list[Any] = _read(_decoder(given.datatype, levels), raw)
    for _ in range(levels - 1):
        values = list(chain.from_iterable(values))
    most = _MOST.get(given.datatype)
    if most is not None and max(values, default=0) > most:
        raise _refusal(f"input {given.name!r} has a number that is no {given.datatype}")
    return values


@lru_cache(maxsize=len(_KINDS) * _LEVELS)
def _decoder(datatype: str, levels: int) -> msgspec.json.Decoder[Any]:
    kind = _KINDS[datatype][0]
    for _ in range(levels):
        kind = list[kind]  # type: ignore[valid-type]
    return msgspec.json.Decoder(kind)


def _texts(given: _Input, part: memoryview, count: int) -> Iterable[str]:
    """Return the elements of a binary tensor of texts, each of which has its length before it."""
    begin, texts = 0, list[bytes]()
    while begin < len(part) and len(texts) < _MOST_TEXTS:
        begin, size = begin + 4, int.from_bytes(part[begin : begin + 4], "little")
        texts.append(bytes(part[begin : begin + size]))
        begin += size
    if begin != len(part) or len(texts) != count:
        raise _refusal(f"input {given.name!r} has other elements than its shape and size say")
    return (text.decode("utf-8", "replace") for text in texts)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _refusal(text: str) -> HttpError:
    return HttpError(_BAD_REQUEST, text)
