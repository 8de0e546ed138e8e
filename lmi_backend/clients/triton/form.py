"""Answers as the HTTP port of Triton 24.10 writes those of `generate` and `generate_stream`.

An object, or an event, for each response: its members in the order of their names, a list of one
as its only element. Strings and numbers are written as Triton's JSON library, RapidJSON, does.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.failure import ErrorResponse
from lmi_backend.clients.form import EVENTS, JSON, Ending, ReplyForm, on_one_line
from lmi_backend.clients.triton.errors import triton_failure
from lmi_backend.repository.variants import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.clients.reply import Output, Reply, Response
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord(c): f"\\{letter}" for c, letter in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}
_ONE_RESPONSE: Final = (
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)
_encode: Final = msgspec.json.Encoder().encode
# Of the exponents between which RapidJSON writes a number without one.
_SMALLEST, _LARGEST = -6, 21


class TritonForm(ReplyForm):
    """An object, or an event for each response.

    Args:
        reply: makes the responses.
        answers: answers that the request wants.
        named: what each response has in addition to the outputs: the model, its version, the id.
        is_stream: whether `generate_stream` answers.
    """

    def __init__(
        self, reply: Reply, answers: int, named: dict[str, str], *, is_stream: bool
    ) -> None:
        kind = f"{EVENTS}; charset=utf-8" if is_stream else JSON
        super().__init__(reply, answers, kind, lambda error: str(reply.failure(error)))
        self._is_stream = is_stream
        self._begin, self._end = (b"data: ", b"\n\n") if is_stream else (b"", b"")
        self._named = {name: quoted(value) for name, value in named.items()}
        # What most responses are: nothing but text, whose name comes last.
        self._head = self._begin + _object({**self._named, "text_output": b""})[:-1]
        self._tail = b"}" + self._end
        self._whole: list[bytes] = []

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`; what is no stream is held until it is over, and has to be one response."""
        events = map(self._written, self._responses(chunks))
        if self._is_stream:
            data = b"".join(events)
            # Looked for here: calls are what a token costs.
            return on_one_line(data) if b"\xe2\x80" in data or b"\xc2\x85" in data else data
        self._whole += events
        return self._only() if self.is_over else b""

    def failure(self, error: LmiError) -> Ending:
        return Ending(self._refused(error), is_end=True)

    def refusal(self, error: LmiError) -> ErrorResponse:
        """Return the response of an error that comes before anything else."""
        if self._whole:
            return ErrorResponse(self.status, _error(_ONE_RESPONSE), dict(self.headers))
        if error.retryable:
            return triton_failure(self._reply.failure(error))
        # Triton 24.10 has no other status for an error of a model.
        return ErrorResponse(HTTPStatus.BAD_REQUEST, self._refused(error), dict(self.headers))

    def _refused(self, error: LmiError) -> bytes:
        return self._event(_error(self._fail(error)))

    def _written(self, response: Response) -> bytes:
        text = response.get("text_output")
        if len(response) == 1 and text.__class__ is str:
            return self._head + quoted(text) + self._tail
        # Others than the main variant's are not sent.
        outputs = {n: _json(n, value) for n, value in response.items() if n in _WRITERS}
        return self._event(_object(self._named | outputs))

    def _only(self) -> bytes:
        return self._whole[0] if len(self._whole) == 1 else _error(_ONE_RESPONSE)

    def _event(self, data: bytes) -> bytes:
        return self._begin + data + self._end


def quoted(text: str) -> bytes:
    """Return a text in quotes."""
    try:
        data = _encode(text)
    except UnicodeEncodeError:
        # A generated text may hold half of a surrogate pair.
        return _quoted(text.encode("utf-8", "replace"))
    # RapidJSON has these in capitals.
    return data if b"\\u" not in data else _quoted(text.encode())


def _quoted(data: bytes) -> bytes:
    """Return UTF-8, or a part of it, in quotes."""
    text = data.decode("utf-8", "surrogateescape").translate(_ESCAPES)
    return b'"' + text.encode("utf-8", "surrogateescape") + b'"'


def number(value: float) -> bytes:
    """Return what becomes of a number in an output of 32 bits."""
    (value,) = struct.unpack("f", struct.pack("f", value))
    if math.isnan(value):
        return b"NaN"
    if math.isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    placed = _placed("".join(map(str, digits)), len(digits) - 1 + int(exponent))
    return f"{'-' * sign}{placed}".encode()


def _placed(digits: str, power: int) -> str:
    """Return digits; the first one stands for so high a power of ten."""
    if len(digits) - 1 <= power < _LARGEST:
        return f"{digits.ljust(power + 1, '0')}.0"
    if 0 <= power < _LARGEST:
        return f"{digits[: power + 1]}.{digits[power + 1 :]}"
    if _SMALLEST <= power < 0:
        return f"0.{'0' * (-power - 1)}{digits}"
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{point}e{power}"


def _string(value: object) -> bytes:
    return _quoted(value) if isinstance(value, bytes) else quoted(str(value))


def _integer(value: int) -> bytes:
    return b"%d" % value


_KINDS: Final[dict[str, Callable[[Any], bytes]]] = {"TYPE_STRING": _string, "TYPE_FP32": number}
_WRITERS: Final = {t.name: _KINDS.get(t.data_type, _integer) for t in MAIN.outputs}


def _json(name: str, value: Output) -> bytes:
    write = _WRITERS[name]
    if not isinstance(value, list):
        return write(value)
    if len(value) == 1:
        return write(value[0])
    return b"[" + b",".join(map(write, value)) + b"]"


def _object(members: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(b'"%s":%s' % (n.encode(), members[n]) for n in sorted(members)) + b"}"


def _error(text: str) -> bytes:
    return _object({"error": quoted(text)})
