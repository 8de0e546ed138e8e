"""Helpers of asynchronous handlers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

from .outputs import Output


def create_non_stream_output(
    data: Any,
    properties: dict[str, str] | None = None,
    error: str | None = None,
    code: int | None = None,
) -> Output:
    """Return a whole answer, or an error."""
    output = Output()
    if error is not None:
        output.error(error, code or 424)
    else:
        output.set_code(code or 200).add(data)
    for name, value in (properties or {}).items():
        output.add_property(name, value)
    return output


def create_stream_chunk_output(
    data: Any, last_chunk: bool, error: str | None = None, code: int | None = None
) -> Output:
    """Return one chunk of a streamed answer: a line of JSON, or text as it is."""
    output = Output(code or 200)
    output.add_property("Content-Type", "application/jsonlines")
    body = {"error": error, "code": code or 424} if error is not None else data
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False) + "\n"
    output.content.append((None, text.encode("utf-8", "replace")))
    output.properties["last_chunk"] = str(last_chunk).lower()
    return output


async def handle_streaming_response(
    response: AsyncIterable[Any], formatter: Callable[..., Any], **kwargs: Any
) -> AsyncGenerator[Output, None]:
    """Yield a chunk for each item of a response, as the formatter writes it."""
    async for item in response:
        yield create_stream_chunk_output(formatter(item, **kwargs), last_chunk=False)
    yield create_stream_chunk_output("", last_chunk=True)
