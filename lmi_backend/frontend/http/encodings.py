"""Decode request bodies: their content encodings, with a bound, and the encoding of their text."""

from __future__ import annotations

import json
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from backports import zstd

from lmi_backend.errors import HttpError
from lmi_backend.frontend.http.bodies import too_large
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ACCEPTED: Final = ("gzip", "deflate", "zstd")
_IDENTITY: Final = ("identity", "")
_ALIASES: Final = {"x-gzip": "gzip"}
MOST_ENCODINGS: Final = 4
"""Of one body, one within the other; identity does not count."""
WINDOW_BYTES: Final = 8 << 20
"""Of zstd's decoder: the most that RFC 9659 allows in HTTP."""
_MOST_MEMBERS: Final = 2048
"""Members of one encoding. Each takes time at any size; tools that cut a text make pieces of 64 KiB
or more."""
_STEP: Final = 1 << 18
"""Bytes that one step decodes at most."""
_FEW: Final = 8
"""Steps that are not long."""
_DEFLATE_HEADER: Final = 2
"""Bytes that tell the two formats of `deflate` apart."""
_GZIP, _ZLIB, _RAW = 31, 15, -15
"""What zlib calls its three formats."""


def decoding_of(encodings: Iterable[str], limit: int) -> Decoding | None:
    """Return what decodes a body; None for a body without an encoding.

    Args:
        encodings: the values of all `Content-Encoding` headers, in their order.
        limit: bytes that the body may have, in each of its encodings and decoded.

    Raises:
        HttpError: an encoding is unknown, or there are too many (415).
    """
    given = ",".join(encodings)
    names = [name.strip().lower() for name in given.split(",")]
    names = [_ALIASES.get(name, name) for name in names if name not in _IDENTITY]
    if len(names) > MOST_ENCODINGS or not set(names) <= set(ACCEPTED):
        text = f"Content-Encoding: {printable(given, 80)}; accepted: {', '.join(ACCEPTED)}"
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"{text}, at most {MOST_ENCODINGS} of them"
        )
    return Decoding(names, limit) if names else None


class Decoding:
    """Decodes a body.

    Args:
        names: the encodings, in the order in which they were applied.
        limit: bytes that the body may have.
    """

    def __init__(self, names: Sequence[str], limit: int) -> None:
        self._names, self._limit = names, limit

    def at_once(self, data: bytes) -> bytes | None:
        """Return a body decoded; None for one that takes long. Raises as `pieces` does."""
        body = b""
        for number, piece in enumerate(self.pieces(data)):
            body += piece
            if number > _FEW or len(body) > _STEP:
                return None
        return body

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what a body decodes to, in pieces of 256 KiB or less.

        A piece may be empty: each step of the work yields one, so that others can run between them.

        Raises:
            HttpError: the body is wrong (400) or too large (413).
        """
        layers = [_Layer(name, self._limit) for name in reversed(self._names)]
        for at in range(0, len(data), _STEP):
            yield from _through(layers, data[at : at + _STEP])
        for layer in layers:
            layer.finish()


def _through(layers: Sequence[_Layer], data: bytes) -> Iterator[bytes]:
    if not layers:
        yield data
        return
    for piece in layers[0].pieces(data):
        yield from _through(layers[1:], piece)


class _Layer:
    """One encoding of a body: members that follow each other, as gzip and zstd allow."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._decoder: Any = None
        """Of the member that has begun; None between two."""
        self._num_members = 0
        self._begun = b""
        """Bytes of a member, too few to tell its format."""
        self._left = self._limit = limit
        """Bytes that it may still decode to."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what data decode to; a piece may be empty."""
        data, is_full = self._begun + data, False
        self._begun = b""
        while data or is_full:
            if self._decoder is None:
                data = self._unpadded(data)
                if not self._begin(data):
                    return
            try:
                piece = self._decoder.decompress(data, _STEP)
            except (zlib.error, zstd.ZstdError) as error:
                raise self._wrong(str(error)) from error
            self._left -= len(piece)
            if self._left < 0:
                raise too_large(self._limit)
            yield piece
            is_full = len(piece) == _STEP
            # zstd's decoder keeps what it has not yet read.
            data = getattr(self._decoder, "unconsumed_tail", b"")
            if self._decoder.eof:
                data, self._decoder, is_full = self._decoder.unused_data, None, False

    def _unpadded(self, data: bytes) -> bytes:
        """Leave out zeros behind a member, as gzip does: what writes blocks pads with them."""
        return data.lstrip(b"\0") if self._num_members and self._name == "gzip" else data

    def _begin(self, data: bytes) -> bool:
        """Begin a member; return False where more bytes must come before its format is known."""
        if not data:
            return False
        if self._name == "deflate":
            if self._num_members:
                raise self._wrong("more follows its end")
            if len(data) < _DEFLATE_HEADER:
                self._begun = data
                return False
        self._num_members += 1
        if self._num_members > _MOST_MEMBERS:
            raise self._wrong(f"it has more than {_MOST_MEMBERS} members")
        self._decoder = _DECODERS[self._name](data)
        return True

    def finish(self) -> None:
        """Refuse a body that stops in the middle of a member."""
        if self._decoder is not None or self._begun:
            raise self._wrong("it is cut short")

    def _wrong(self, reason: str) -> HttpError:
        return HttpError(HTTPStatus.BAD_REQUEST, f"the body is not {self._name}: {reason}")


_OF_ZSTD: Final[dict[int, int]] = {
    zstd.DecompressionParameter.window_log_max: WINDOW_BYTES.bit_length() - 1
}


def _inflater(data: bytes) -> Any:
    """Return a decoder of `deflate`: zlib's format, as the standard says, or without its header."""
    has_header = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
    return zlib.decompressobj(_ZLIB if has_header else _RAW)


_DECODERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "gzip": lambda _: zlib.decompressobj(_GZIP),
    "deflate": _inflater,
    "zstd": lambda _: zstd.ZstdDecompressor(options=_OF_ZSTD),
}


def utf8_of(data: bytes, limit: int) -> bytes:
    """Return JSON in UTF-8 and without a byte-order mark, from any Unicode encoding.

    Args:
        data: the text.
        limit: bytes that it may have in UTF-8.

    Raises:
        HttpError: it is not in that encoding (400), or too large (413).
    """
    encoding = json.detect_encoding(data[:4])
    if encoding == "utf-8":
        return data
    try:
        text = data.decode(encoding).encode()
    except UnicodeError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"the body is not {encoding}: {error}") from error
    if len(text) > limit:
        raise too_large(limit)
    return text
