"""What clients of Triton's HTTP port are, and the bodies of its V2 protocol.

Repositories, memory, logging and traces are not for clients. A body is read by its schema, and
written again from what was read: Triton 24.10 crashes on some bodies that its own schema allows
(`classification`) or that nest deeply. So Triton gets a body with the members below and nothing
else. The last of two members with the same name counts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from lmi_backend.clients.openai import HttpForm
from lmi_backend.clients.spec import (
    PROBE,
    ClientSpec,
    ErrorResponse,
    Path,
    failure,
    message_of,
    status_of,
)
from lmi_backend.errors import HttpError
from lmi_backend.json_text import UNREADABLE, problem_of
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmi_backend.errors import LmiError


def triton_failure(error: LmiError) -> ErrorResponse:
    return failure(status_of(error), {"error": message_of(error)}, error)


_MODEL: Final = r"/v2/models/[\w-][\w.-]{0,254}(/versions/\d{1,19})?"
_PATHS: Final = tuple(
    (method, re.compile(f"{pattern}/?", re.ASCII))
    for method, pattern in (
        ("GET", r"/v2(/(health/live|health/ready|models/stats))?"),
        ("GET", rf"{_MODEL}(/(?P<word>ready|config|stats))?"),
        ("POST", rf"{_MODEL}/(?P<word>infer|generate|generate_stream)"),
    )
)


class TritonPath(NamedTuple):
    text: str
    """As it is written to Triton."""
    method: str
    """The only one that it has."""
    word: str = ""
    """What the model is to do."""


def read_path(text: str) -> TritonPath | None:
    """Return a path as it was written; None for one that is not for clients."""
    for method, pattern in _PATHS:
        if (match := pattern.fullmatch(text)) is not None:
            return TritonPath(text.rstrip("/"), method, match.groupdict().get("word") or "")
    return None


_LARGEST_INT: Final = (1 << 64) - 1
_LEAST_INT: Final = -(1 << 63)
_LONGEST_MESSAGE: Final = 300
"""Characters of what msgspec says: it may quote a name of the client's."""
MEMBERS: Final = 4096
"""Of an object."""
PROMPTS: Final = frozenset({"text_input", "inputs", "image"})
"""Inputs whose texts are no JSON; that of any other may be read, and may manage adapters."""

Name = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
_Scalar = bool | int | float | str | None
_Scalars = list[_Scalar | list[_Scalar]]
_Members = Annotated[dict[Name, _Scalar | _Scalars], Meta(max_length=MEMBERS)]
Body = dict[str, Any]
"""A body of `generate`: scalars, flat lists of them, and `parameters` that hold the same."""
_Body = Annotated[dict[Name, _Scalar | _Scalars | _Members], Meta(max_length=MEMBERS)]
_generate: Final = msgspec.json.Decoder(_Body)


def read_members(data: bytes) -> Body:
    """Return the members of a body of `generate`, with flat lists.

    Raises:
        HttpError: it is none, or a member is not accepted (400).
    """
    body: Body = decode(_generate.decode, data)
    for members in (body, *(each for each in body.values() if isinstance(each, dict))):
        for name, value in members.items():
            flat = [one for each in _listed(value) for one in _listed(each)]
            for each in flat or (None,):
                check_member(name, each)
            if isinstance(value, list):
                members[name] = flat
    return body


def write_generate_body(body: Body, tenant: str, trace: Mapping[str, str]) -> bytes:
    """Return a body for Triton; a known tenant and a trace replace those in the body."""
    body |= trace
    if tenant:
        nested = body.get("parameters")
        if isinstance(nested, dict):
            nested.pop("tenant", None)
        body["tenant"] = tenant
    return msgspec.json.encode(body)


def texts_of(body: Body) -> tuple[str, ...]:
    nested = [each for each in body.values() if isinstance(each, dict)]
    members = chain.from_iterable(each.items() for each in (body, *nested))
    texts = [one for name, value in members if name not in PROMPTS for one in _listed(value)]
    return tuple(each for each in texts if isinstance(each, str))


def decode(read: Callable[[Any], Any], data: object) -> Any:
    """Return what a decoder makes of data. Raises HttpError: it cannot be read so (400)."""
    try:
        return read(data)
    except msgspec.ValidationError as error:
        problem = printable(str(error), _LONGEST_MESSAGE)
        raise refusal(f"the body is not what Triton's protocol has: {problem}") from error
    except UNREADABLE as error:
        raise refusal(f"the body {problem_of(error, b'')}") from error


def check_member(name: str, value: object) -> None:
    """Raise HttpError (400) for a parameter that is not for the model, or beyond 64 bits."""
    if name == "classification" or name.startswith("shared_memory"):
        raise refusal(f"{name!r} is not accepted on this port")
    if isinstance(value, int) and not _LEAST_INT <= value <= _LARGEST_INT:
        raise refusal(f"{name!r} has a number that does not fit in 64 bits")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def refusal(text: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, text)


MOST_TEXT: Final = 16 << 20
"""Bytes of JSON and of texts that may be JSON, in a request that Triton answers: 20 ms for each of
the readers and writers of it."""
_MOST_TEXTS: Final = 50_000
"""In a binary tensor."""
_MOST_TENSORS: Final = 1024
_LEVELS: Final = 8
"""Of lists in the `data` of a tensor."""
_OPENING: Final = re.compile(rb"[\[ \t\r\n]*")
_ANSWERS: Final = {
    "request": ("response",),
    "inputs": ("generated_text", "text_output", "response"),
    "text_input": ("text_output",),
    "input_ids": ("output_ids",),
}
"""Outputs of our models that hold the answer to a prompt, by the input that it is in."""
_Length = Annotated[int, Meta(ge=0, lt=1 << 31)]


class _InputParameters(msgspec.Struct, forbid_unknown_fields=True):
    binary_data_size: _Length | None = None


class _OutputParameters(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    binary_data: bool | None = None


class _Input(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    datatype: Literal[
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
        "FP32", "FP64", "BF16", "BYTES",
    ]  # fmt: skip
    shape: Annotated[list[_Length], Meta(min_length=1, max_length=16)]
    parameters: _InputParameters = msgspec.field(default_factory=_InputParameters)
    data: msgspec.Raw = msgspec.Raw()


class _Output(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    parameters: _OutputParameters = msgspec.field(default_factory=_OutputParameters)


class _Inference(msgspec.Struct, forbid_unknown_fields=True):
    inputs: Annotated[list[_Input], Meta(max_length=_MOST_TENSORS)]
    id: Annotated[str, Meta(pattern=r"^[^\x00]*\Z")] = ""
    parameters: Annotated[dict[Name, bool | int | float | str], Meta(max_length=MEMBERS)] = {}
    outputs: Annotated[list[_Output], Meta(max_length=_MOST_TENSORS)] = []


class Written(NamedTuple):
    """A body for Triton."""

    pieces: tuple[bytes | memoryview, ...]
    """Its bytes; what is large is a view of the client's body."""
    json_length: int | None = None
    """Bytes before the binary tensors, where there may be some."""
    texts: tuple[str, ...] = ()
    """What the client gave that may be JSON in JSON."""


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


def write_inference(
    data: bytes, json_length: int | None, tenant: str, *, is_counted: bool = False
) -> Written:
    """Return an inference request for Triton.

    Args:
        data: the client's body.
        json_length: bytes before the binary tensors; None where all is JSON.
        tenant: replaces the body's where it is known.
        is_counted: whether the answer must hold its text, which is counted as tokens.

    Raises:
        HttpError: the body is not one, or would leave out what is counted (400).
    """
    head = data if json_length is None else data[:json_length]
    tail = memoryview(data)[len(head) :]
    read = decode(_inference.decode, head)
    _check_inference(read)
    if is_counted:
        _check_outputs(read)
    sizes = [each.parameters.binary_data_size for each in read.inputs]
    given = sum(size or 0 for size in sizes)
    if given != len(tail) or (json_length is None and any(size is not None for size in sizes)):
        text = f"the binary_data_size of all inputs is {given} bytes, and {len(tail)} follow the"
        raise refusal(f"{text} JSON (Inference-Header-Content-Length)")
    texts: list[str] = []
    begin = 0
    inputs = []
    for each, size in zip(read.inputs, sizes, strict=True):
        part = tail[begin : begin + (size or 0)]
        begin += len(part)
        written, values = _written(each, part)
        inputs.append(written)
        if each.name not in PROMPTS:
            check_size(len(part))
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
    return Written((head, tail), length, tuple(texts))


def name_raw(data: bytes, name: str, tenant: str) -> Written:
    """Return a request for Triton that is whole the element of an input, and names a tenant."""
    size = len(data) + 4
    element = {"name": name, "datatype": "BYTES", "shape": [1]}
    inputs = [element | {"parameters": {"binary_data_size": size}}]
    parameters = {"binary_data_output": True, "tenant": tenant}
    head = msgspec.json.encode({"inputs": inputs, "parameters": parameters})
    return Written((head, len(data).to_bytes(4, "little"), data), len(head))


def check_size(size: int) -> None:
    """Raise HttpError for more JSON or text than Triton is sent."""
    if size > MOST_TEXT:
        text = f"{size} bytes of JSON or text for Triton; accepted: at most {MOST_TEXT}"
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def _check_inference(read: _Inference) -> None:
    names = [each.name for each in read.inputs]
    if len(set(names)) < len(names):
        raise refusal("two inputs have one name")
    for name, value in read.parameters.items():
        check_member(name, value)
        if isinstance(value, str) and "\0" in value:
            raise refusal(f"parameter {name!r} holds a null character")


def _check_outputs(read: _Inference) -> None:
    named = {each.name for each in read.outputs}
    for each in read.inputs:
        answers = _ANSWERS.get(each.name, ())
        if named and answers and named.isdisjoint(answers):
            text = "outputs do not name the text, by which the key's tokens-per-minute count"
            raise refusal(f"{text}; accepted: {answers[0]} among them, or no outputs")


def _written(given: _Input, part: memoryview) -> tuple[dict[str, Any], Iterable[str]]:
    """Return an input as Triton gets it, and the texts in it."""
    size, count = given.parameters.binary_data_size, prod(given.shape)
    written: dict[str, Any] = {"name": given.name, "datatype": given.datatype, "shape": given.shape}
    raw = bytes(given.data)
    if (size is None) != bool(raw):
        raise refusal(f"input {given.name!r} needs either data or binary_data_size")
    if size is None:
        values = _values(given, raw)
        if len(values) != count:
            text = f"input {given.name!r} has {len(values)} elements, and its shape {count}"
            raise refusal(text)
        return written | {"data": values}, values if given.datatype == "BYTES" else ()
    element = _KINDS[given.datatype][1]
    texts = () if element else _texts(given, part, count)
    if element and len(part) != count * element:
        raise refusal(f"input {given.name!r} has {len(part)} bytes, and its shape another number")
    return written | {"parameters": {"binary_data_size": size}}, texts


def _values(given: _Input, raw: bytes) -> list[Any]:
    """Return the elements of a tensor, flat."""
    opening = _OPENING.match(raw)
    levels = opening[0].count(b"[") if opening else 0
    if not 0 < levels <= _LEVELS:
        raise refusal(f"the data of input {given.name!r}: accepted: lists of 1 to {_LEVELS} levels")
    if _KINDS[given.datatype][0] is None:
        raise refusal(f"the data of input {given.name!r}: accepted: binary for {given.datatype}")
    values: list[Any] = decode(_decoder(given.datatype, levels).decode, raw)
    for _ in range(levels - 1):
        values = list(chain.from_iterable(values))
    most = _MOST.get(given.datatype)
    if most is not None and (highest := max(values, default=0)) > most:
        raise refusal(f"input {given.name!r}: {highest}; accepted: at most {most}")
    return values


@lru_cache(maxsize=len(_KINDS) * _LEVELS)
def _decoder(datatype: str, levels: int) -> msgspec.json.Decoder[Any]:
    kind = _KINDS[datatype][0]
    for _ in range(levels):
        kind = list[kind]  # type: ignore[valid-type]
    return msgspec.json.Decoder(kind)


def _texts(given: _Input, part: memoryview, count: int) -> Iterable[str]:
    """Return the elements of a binary tensor of texts; each has its length before it."""
    begin, texts = 0, list[memoryview]()
    while begin < len(part) and len(texts) < _MOST_TEXTS:
        begin, size = begin + 4, int.from_bytes(part[begin : begin + 4], "little")
        texts.append(part[begin : begin + size])
        begin += size
    if begin != len(part) or len(texts) != count:
        raise refusal(f"input {given.name!r} has other elements than its shape and size say")
    return (str(text, "utf-8", "replace") for text in texts)


_REST: Final = "/v2/{rest:path}"
_NAMED: Final = "/v2/models/{model}"
_READY: Final = ("/v2/health/ready", f"{_NAMED}/ready", f"{_NAMED}/versions/{{version}}/ready")

SPEC: Final = ClientSpec(
    name="triton",
    title="Triton",
    failure=triton_failure,
    form=HttpForm,
    paths=(
        Path("/v2", "triton", "GET POST"),
        Path("/v2/health/live", "triton", "GET", PROBE),
        *(Path(each, "triton ready", "GET", PROBE) for each in _READY),
        Path(_REST, "triton", "GET"),
        Path(_REST, "triton", takes_place=True, counts_n=True),
    ),
)
