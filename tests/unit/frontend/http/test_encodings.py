"""Bodies with a content encoding: what comes out, what is refused, and how much is held."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from backports import zstd

from lmi_backend.errors import HttpError
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.http.bodies import Bodies, encoding_of, utf8_of
from lmi_backend.frontend.http.bodies import decoded as pieces
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.http.protocol import CLIENT, Client
from lmi_backend.printable import MIB
from tests.support.answers.asking import ask

Pack = Callable[[bytes], bytes]


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def unknown_size(data: bytes) -> bytes:
    """A frame that does not say how long it is, as streaming encoders write it."""
    packer = zstd.ZstdCompressor(level=19)
    return packer.compress(data) + packer.flush()


PACKS: dict[str, tuple[str, Sequence[Pack]]] = {
    "gzip": ("gzip", [gzip.compress]),
    "gzip's other name": ("x-GZIP", [gzip.compress]),
    "zlib": ("deflate", [zlib.compress]),
    "zlib, fast": ("deflate", [lambda data: zlib.compress(data, 1)]),
    "raw deflate": ("Deflate", [raw]),
    "zstd": ("zstd", [zstd.compress]),
    "zstd of any size": ("zstd", [unknown_size]),
    "two members": ("gzip", [lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])]),
    "two frames": ("zstd", [lambda data: zstd.compress(data[:9]) + zstd.compress(data[9:])]),
}
TEXT = b'{"inputs": "Once, there was a model."}'
LONG = b"".join(b'{"n": %d}, ' % (number * number) for number in range(40_000))


async def decoded(names: str, data: bytes, size: int, limit: int = 8 * MIB) -> bytes:
    """Send a body in parts of so many bytes; return what is read."""
    parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
    bodies = Bodies(8 * limit, limit)

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    try:
        body, _ = await bodies.read(receive, encoding_of({"content-encoding": names}))
    except HttpError:
        assert bodies.held.size == 0
        raise
    assert bodies.held.size == max(0, len(body) - (1 << 16))
    return body


def packed(name: str, data: bytes) -> tuple[str, bytes]:
    names, packs = PACKS[name]
    for pack in packs:
        data = pack(data)
    return names, data


@pytest.mark.parametrize("name", PACKS)
async def test_each_encoding_gives_the_body(name: str) -> None:
    assert await decoded(*packed(name, TEXT), size=1) == TEXT
    names, data = packed(name, LONG)
    assert await decoded(names, data, size=50_000) == LONG
    assert await decoded(names, data, size=8 * MIB) == LONG
    assert await decoded(*packed(name, b""), size=100) == b""


@pytest.mark.parametrize("names", ["", "identity", " Identity "])
def test_a_body_without_an_encoding_is_not_decoded(names: str) -> None:
    assert encoding_of({"content-encoding": names}) == ""


def test_a_window_that_http_allows_is_taken() -> None:
    assert b"".join(pieces(b"\x28\xb5\x2f\xfd\x00\x68\x01\0\0", "zstd", MIB)) == b""


def _blocks(number: int) -> bytes:
    """Raw deflate that decodes to nothing."""
    return b"\0\0\0\xff\xff" * number + b"\1\0\0\xff\xff"


def bomb(name: str) -> tuple[str, bytes]:
    if name == "that is long itself":
        return "deflate", _blocks(MIB // 4)
    return packed(name, bytes(32 * MIB))


BOMBS = ("gzip", "raw deflate", "zstd", "that is long itself")


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_is_refused_before_it_takes_memory(name: str) -> None:
    names, data = bomb(name)
    tracemalloc.start()
    try:
        with pytest.raises(HttpError, match="larger than") as refused:
            await decoded(names, data, size=1 << 16, limit=MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.status == 413
    # What was sent, and a step of each encoding.
    assert peak < 2 * MIB + 2 * len(data)


async def test_others_have_their_turns_while_a_body_is_decoded() -> None:
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beating = asyncio.create_task(beat())
    await decoded("zstd", zstd.compress(bytes(32 * MIB)), size=MIB, limit=64 * MIB)
    beating.cancel()
    # One for each step at least.
    assert turns > 100


def _changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


WRONG = {
    "no gzip": ("gzip", TEXT),
    "no deflate": ("deflate", b"\xff" + TEXT),
    "no zstd": ("zstd", TEXT),
    "zlib's format under gzip's name": ("gzip", zlib.compress(TEXT)),
    "gzip's format under zstd's name": ("zstd", gzip.compress(TEXT)),
    "gzip cut": ("gzip", gzip.compress(TEXT)[:-1]),
    "zlib cut": ("deflate", zlib.compress(TEXT)[:-1]),
    "one byte": ("deflate", b"\x78"),
    "raw deflate cut": ("deflate", raw(TEXT)[:-1]),
    "zstd cut": ("zstd", zstd.compress(TEXT)[:-1]),
    "a wrong sum": ("gzip", _changed(gzip.compress(TEXT), -8)),
    "more behind gzip": ("gzip", gzip.compress(TEXT) + b"more"),
    "more behind deflate": ("deflate", zlib.compress(TEXT) + b"more"),
    "a byte behind deflate": ("deflate", zlib.compress(TEXT) + b"\0"),
    "zeros before gzip": ("gzip", b"\0\0" + gzip.compress(TEXT)),
    "more behind zstd": ("zstd", zstd.compress(TEXT) + b"more"),
    "a dictionary": ("zstd", b"\x28\xb5\x2f\xfd\x21\x07\x01\x01\0\0a"),
    # Of the frame's header, the sixth byte is the window's size.
    "a window of 16 MiB": ("zstd", b"\x28\xb5\x2f\xfd\x00\x70\x01\0\0"),
    "members without end": ("gzip", gzip.compress(b"") * 3000),
    "frames without end": ("zstd", zstd.compress(b"") * 3000),
}


@pytest.mark.parametrize("size", [3, MIB])
@pytest.mark.parametrize("name", WRONG)
async def test_what_is_not_in_its_encoding_is_refused(name: str, size: int) -> None:
    names, data = WRONG[name]
    with pytest.raises(HttpError, match=r"the body is not (gzip|deflate|zstd): ") as refused:
        await decoded(names, data, size)
    assert refused.value.status == 400


@pytest.mark.parametrize("size", [1, MIB])
@pytest.mark.parametrize("more", [b"\0", b"more"])
async def test_what_follows_deflate_is_said(size: int, more: bytes) -> None:
    with pytest.raises(HttpError, match="follows its first member"):
        await decoded("deflate", zlib.compress(TEXT) + more, size)


@pytest.mark.parametrize("names", ["br", "compress", "gzip, br", "gzip;q=1", "aws-chunked", "é"])
def test_what_is_unknown_is_refused_by_name(names: str) -> None:
    with pytest.raises(HttpError, match="accepted: one of gzip, deflate, zstd") as refused:
        encoding_of({"content-encoding": names})
    assert refused.value.status == 415


@pytest.mark.parametrize(
    ("encoding", "data", "status", "accepted"),
    [
        ("br", TEXT, 415, "gzip, deflate, zstd"),
        ("gzip", TEXT, 400, None),
        ("zstd", zstd.compress(bytes(MIB + 1)), 413, None),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v2/models/none/infer"])
async def test_a_refused_encoding_says_which_are_accepted(
    tmp_path: Path, path: str, encoding: str, data: bytes, status: int, accepted: str | None
) -> None:
    front_end = FrontEnd(Settings(base=tmp_path, max_body=MIB))
    answer = await ask(front_end, path, {"content-encoding": encoding}, "POST", body=data)
    assert (answer.status, answer.headers.get("accept-encoding")) == (status, accepted)


@pytest.mark.parametrize(
    ("encodings", "expected"),
    [
        ({"content-encoding": "gzip", "content-length": "30"}, {"content-length": "8"}),
        ({"transfer-encoding": "gzip, Chunked"}, {"transfer-encoding": "gzip, Chunked"}),
        ({"content-encoding": "gzip", "transfer-encoding": "chunked"},
         {"transfer-encoding": "chunked"}),
    ],
)  # fmt: skip
async def test_users_code_is_told_of_the_body_as_it_is(
    encodings: dict[str, str], expected: dict[str, str]
) -> None:
    """And not of what was sent."""
    sent = gzip.compress('{"a": 1}'.encode("utf-16"))
    headers = encodings | {"x": "y"}
    cycle: Any = SimpleNamespace(disconnected=False, scope={})
    scope = {"method": "POST", "path": "/", CLIENT: Client(cycle)}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": sent}

    exchange = Exchange(scope, receive, None)  # type: ignore[arg-type]
    assert await exchange.text() == b'{"a": 1}'
    assert exchange.headers == expected | {"x": "y"}
    exchange.close()


MANY = '{"a": "é漢😀"}'


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
@pytest.mark.parametrize("text", [MANY, " [1]", "7", '"a"', ""])
def test_json_may_come_in_any_encoding_of_unicode(text: str, encoding: str) -> None:
    marks = {"utf-16-be": "\ufeff"} if text == MANY else {}
    data = (marks.get(encoding, "") + text).encode(encoding)
    assert utf8_of(data, MIB).decode() == text


@pytest.mark.parametrize(
    ("data", "limit", "status"),
    [
        (b"\xff\xfe{\0\0\xd8\0\0", MIB, 400),
        (b"\xfe\xff\0{\0", MIB, 400),
        (b"\xef\xbb\xbf\xff", MIB, 400),
        ("漢".encode("utf-16") * 3, 8, 413),
    ],
)
def test_text_that_is_not_in_its_encoding_is_refused(data: bytes, limit: int, status: int) -> None:
    with pytest.raises(HttpError) as refused:
        utf8_of(data, limit)
    assert refused.value.status == status
