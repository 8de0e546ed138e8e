"""Triton's V2 paths, passed to its own HTTP port; but for `generate`, where the model is asked."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from lmi_backend.errors import HttpError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.generate import Generate

_NAME: Final = r"[\w-][\w.-]*"
_PATHS: Final = re.compile(
    rf"/v2(/health/(live|ready)|/models/(stats|{_NAME}(/versions/\d+)?"
    r"(/(ready|config|stats|infer|generate|generate_stream))?))?/?",
    re.ASCII,
)
"""What is for clients. Repositories, shared memory, logging and traces are for the operator."""
_NOT_PASSED: Final = frozenset(
    {
        "host", "connection", "transfer-encoding", "content-length", "keep-alive", "te", "upgrade",
        "authorization", "cookie", "x-api-key", "expect", "triton-control-key",
    }
)  # fmt: skip
_JSON_LENGTH: Final = "inference-header-content-length"
_BAD_REQUEST, _NOT_FOUND = 400, 404
# A tritonserver that ends waits for connections that are open, for 5 s.
_KEPT_SECONDS: Final = 1.0


class TritonProxy:
    """Passes requests on and their answers back.

    Args:
        url: of Triton's HTTP port.
        limit: bytes of a body.
        seconds: time a body may take to come.
        generate: answers what needs no passing on.
    """

    def __init__(self, url: str, limit: int, seconds: float, generate: Generate) -> None:
        self._url, self._limit, self._seconds = url, limit, seconds
        self._generate = generate
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def __call__(self, exchange: Exchange) -> None:
        """Answer a request; only those for clients are passed on."""
        path = exchange.raw_path
        if not _PATHS.fullmatch(path):
            raise HttpError(_NOT_FOUND, f"{path[:200]!r} is not served on this port")
        # Whole, so that Triton gets neither a million chunks nor a body that is too deep for it.
        data = await exchange.body(self._limit, self._seconds)
        if data:
            _check_depth(exchange, data)
        if _JSON_LENGTH not in exchange.headers and await self._generate.answer(exchange, data):
            return
        headers = {n: v for n, v in exchange.headers.items() if n not in _NOT_PASSED}
        url = self._url + path + (f"?{exchange.query}" if exchange.query else "")
        await exchange.unless_gone(self._pass_on(exchange, url, data, headers))

    async def _pass_on(
        self, exchange: Exchange, url: str, data: bytes, headers: Mapping[str, str]
    ) -> None:
        try:
            async with self._open().request(
                exchange.method, url, data=data or None, headers=headers
            ) as response:
                await _pass_back(exchange, response)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            if not exchange.status:
                raise UnavailableError("Triton's HTTP port does not answer") from error
            if exchange.is_event_stream:
                said = {"error": "tritonserver ended before the answer did"}
                data = b"data: " + msgspec.json.encode(said) + b"\n\n"
                await exchange.write(data, is_last=True)
            # Any other is left without its end, so that its client does not take it for whole.

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False
            )
        return self._session


async def _pass_back(exchange: Exchange, response: aiohttp.ClientResponse) -> None:
    headers = {n.lower(): v for n, v in response.headers.items() if n.lower() not in _NOT_PASSED}
    if (length := response.headers.get("content-length")) is not None:
        headers["content-length"] = length
    await exchange.start(response.status, headers)
    async for data in response.content.iter_any():
        await exchange.write(data)
    await exchange.write(b"", is_last=True)


def _check_depth(exchange: Exchange, data: bytes) -> None:
    """Refuse what is nested so deeply that Triton 24.10 would end with a segmentation fault."""
    head = data
    if (length := exchange.headers.get(_JSON_LENGTH)) is not None:
        head = data[: int(length)] if length.isdecimal() else b""
    if not head:
        return
    try:
        msgspec.json.decode(head)
    except RecursionError as error:
        raise HttpError(_BAD_REQUEST, "the body is nested too deeply") from error
    except msgspec.DecodeError as error:
        raise HttpError(_BAD_REQUEST, f"the body is not JSON: {error}") from error
