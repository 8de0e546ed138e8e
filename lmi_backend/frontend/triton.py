"""Triton's V2 paths, passed to its own HTTP port.

Path, body and headers are read here and written again: nothing reaches Triton as a client wrote it.
"""

from __future__ import annotations

import asyncio
import re
from functools import cached_property, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from lmi_backend.clients.request import take_trace
from lmi_backend.clients.triton import (
    TritonPath,
    Written,
    check_size,
    name_raw,
    read_members,
    read_path,
    refusal,
    texts_of,
    write_generate_body,
    write_inference,
)
from lmi_backend.errors import HTTP_ERROR, HTTP_STATUS, EngineError, HttpError, UnavailableError
from lmi_backend.frontend.http.bodies import aside, refuse_many_values
from lmi_backend.frontend.lora_routes import check_bodies
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from lmi_backend.frontend.http.exchange import Exchange

_JSON_LENGTH: Final = "inference-header-content-length"
_LENGTH: Final = re.compile(r"[0-9]{1,10}")
_ENCODINGS: Final = ("gzip", "deflate")
_NEVER: Final = re.compile(r"q=0(\.0*)?")
_PASSED_BACK: Final = ("content-type", "content-encoding", "content-length", _JSON_LENGTH)
# A tritonserver that ends waits for connections that are open, for 5 s.
_CACHE_SECONDS: Final = 1.0
_SILENT: Final = "Triton's HTTP port does not answer"
_ENDED: Final = "tritonserver exited before the answer was complete"
_ERROR_EVENT: Final = b'data: {"error":'
_CODED: Final = re.compile(rf'(?s)(?:data: )?{{"error":"({"|".join(HTTP_STATUS)}): (.*)"}}\s*')
"""An error of a model. Triton's /generate answers each with 400."""
_PART: Final = 1 << 18
"""Bytes of a body that are written at once."""
_TOKEN_BYTES: Final = 4
"""Of a body or an answer that count as a token: what Triton says of them holds no count."""


class _Sent(NamedTuple):
    path: TritonPath
    headers: Mapping[str, str]
    pieces: tuple[bytes | memoryview, ...] = ()
    """Of the body."""

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


class TritonProxy:
    """Passes requests on and their answers back."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def close(self) -> None:
        await self._session.close()

    async def __call__(self, exchange: Exchange) -> None:
        path = _path_of(exchange)
        sent = _Sent(path, _headers(exchange))
        if path.method == "POST":
            read = self._inference if path.word == "infer" else self._generation
            sent = await read(exchange, path)
        await exchange.unless_gone(self._pass_on(exchange, sent))

    async def _generation(self, exchange: Exchange, path: TritonPath) -> _Sent:
        data = await exchange.text()
        check_size(len(data))
        refuse_many_values(data)
        body = read_members(data)
        await _check_texts(exchange, texts_of(body))
        # For /generate Triton passes no headers on.
        trace = take_trace(dict(exchange.headers))
        written = await aside(len(data), write_generate_body, body, exchange.tenant, trace)
        return _Sent(path, _headers(exchange, "json"), (written,))

    async def _inference(self, exchange: Exchange, path: TritonPath) -> _Sent:
        # Beside JSON there may be bytes, which are no text.
        has_length = _JSON_LENGTH in exchange.headers
        data = await (exchange.body() if has_length else exchange.text())
        length = _json_length(exchange, len(data))
        check_size(length or len(data))
        if length == 0:
            written = await self._raw(exchange, path, data)
        else:
            refuse_many_values(data[:length])
            write = partial(write_inference, is_counted=exchange.has_token_limit)
            written = await aside(len(data), write, data, length, exchange.tenant)
        await _check_texts(exchange, written.texts)
        headers = _headers(exchange, "json" if length is None else "octet-stream")
        if written.json_length is not None:
            headers[_JSON_LENGTH] = str(written.json_length)
        return _Sent(path, headers, written.pieces)

    async def _raw(self, exchange: Exchange, path: TritonPath, data: bytes) -> Written:
        texts = (data.decode("utf-8", "replace"),)
        # There is no place in it for the tenant.
        if exchange.tenant and (name := await self._only_text(path)):
            return name_raw(data, name, exchange.tenant)._replace(texts=texts)
        return Written((data,), 0, texts)

    async def _only_text(self, path: TritonPath) -> str:
        """Return the name of a model's input where it has one, of one text; empty where not."""
        url = self._to(path.text.removesuffix("/infer"))
        try:
            async with self._session.get(url, headers={"accept-encoding": "identity"}) as response:
                metadata = await response.read()
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise UnavailableError(_SILENT) from error
        inputs = msgspec.json.decode(metadata).get("inputs", ())
        texts = [each["name"] for each in inputs if each["datatype"] == "BYTES"]
        return texts[0] if len(inputs) == len(texts) == 1 else ""

    async def _pass_on(self, exchange: Exchange, sent: _Sent) -> None:
        length = {"content-length": str(sent.size)} if sent.pieces else {}
        try:
            async with self._session.request(
                sent.path.method,
                self._to(sent.path.text),
                data=_one_by_one(sent.pieces) if sent.pieces else None,
                headers={**sent.headers, **length},
                allow_redirects=False,
            ) as response:
                await _pass_back(exchange, sent, response)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            if not exchange.has_begun:
                raise UnavailableError(_SILENT) from error
            exchange.error = type(error).__name__
            if exchange.is_event_stream:
                data = _ERROR_EVENT + msgspec.json.encode(_ENDED) + b"}\n\n"
                await exchange.write(data, is_last=True)
            # Any other is left without its end, so that its client does not take it for whole.

    def _to(self, path: str) -> URL:
        return URL(self._url + path, encoded=True)

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_CACHE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding", "user-agent", "content-type"),
        )


async def _pass_back(exchange: Exchange, sent: _Sent, response: aiohttp.ClientResponse) -> None:
    headers = {name: response.headers[name] for name in _PASSED_BACK if name in response.headers}
    data = await response.read() if response.status >= HTTP_ERROR else b""
    if coded := _CODED.fullmatch(data.decode("utf-8", "replace")):
        raise HttpError(HTTP_STATUS[coded[1]], msgspec.json.decode(f'"{coded[2]}"'))
    counts = bool(sent.pieces) and not data
    await exchange.start(response.status, headers)
    exchange.num_prompt_tokens = _tokens(sent.size) if counts else 0
    num_bytes = 0
    await exchange.write(data)
    async for data in response.content.iter_any():
        num_bytes += len(data)
        if exchange.is_event_stream and _ERROR_EVENT in data:
            exchange.error = EngineError.__name__
        exchange.num_tokens = _tokens(num_bytes) if counts else 0
        await exchange.write(data)
    await exchange.write(b"", is_last=True)


async def _one_by_one(pieces: Sequence[bytes | memoryview]) -> AsyncIterator[bytes]:
    """Yield the bytes of pieces; no copy is large."""
    for piece in pieces:
        for at in range(0, len(piece), _PART):
            yield bytes(piece[at : at + _PART])


async def _check_texts(exchange: Exchange, texts: Sequence[str]) -> None:
    """Refuse JSON in JSON that takes long to read, or that manages adapters."""
    for text in texts:
        refuse_many_values(text.encode("utf-8", "surrogatepass"))
    await aside(sum(map(len, texts)), check_bodies, exchange, texts)


def _tokens(num_bytes: int) -> int:
    return -(-num_bytes // _TOKEN_BYTES)


def _path_of(exchange: Exchange) -> TritonPath:
    text = exchange.raw_path
    if (path := read_path(text)) is None:
        raise HttpError(HTTPStatus.NOT_FOUND, f"{printable(text)} is not served on this port")
    if exchange.query:
        raise refusal(f"{printable(exchange.query)}: {path.text} has no parameters")
    if exchange.method != path.method:
        exchange.extra_headers.append((b"allow", path.method.encode()))
        raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, f"{exchange.method} is not served here")
    return path


def _headers(exchange: Exchange, kind: str = "") -> dict[str, str]:
    accepted = _encoding(exchange.headers.get("accept-encoding", ""))
    typed = {"content-type": f"application/{kind}"} if kind else {}
    return {"accept-encoding": accepted, **take_trace(dict(exchange.headers)), **typed}


def _encoding(accepted: str) -> str:
    """Return in which encoding Triton answers: one that the client names, as it names it."""
    for each in accepted.split(","):
        name, _, quality = each.partition(";")
        if name.strip().lower() in _ENCODINGS and not _NEVER.fullmatch(quality.strip()):
            return name.strip().lower()
    return "identity"


def _json_length(exchange: Exchange, size: int) -> int | None:
    given = exchange.headers.get(_JSON_LENGTH)
    if given is None:
        return None
    if not _LENGTH.fullmatch(given) or int(given) > size:
        text = f"Inference-Header-Content-Length: {printable(given)}; accepted: 0 to {size}, "
        raise refusal(f"{text}the bytes of the body")
    return int(given)
