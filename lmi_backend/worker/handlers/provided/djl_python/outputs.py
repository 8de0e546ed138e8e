"""What a handler gives back."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any


class Output:
    """An answer: a code, properties, which are HTTP headers, and contents; or a stream."""

    def __init__(self, code: int = 200, message: str = "OK") -> None:
        self.code = code
        self.message = message
        self.properties: dict[str, str] = {}
        self.content: list[tuple[str | None, bytes]] = []
        self.stream_content: Iterable[Any] | AsyncIterable[Any] | None = None
        self.stream_formatter: Callable[[Any], bytes | str] | None = None
        self.finalizer: tuple[Callable[..., Any], tuple[Any, ...]] | None = None

    def set_code(self, code: int) -> Output:
        self.code = code
        return self

    def set_message(self, message: str) -> Output:
        self.message = message
        return self

    def error(self, error: str, code: int = 424, message: str = "invoke handler failure") -> Output:
        self.code, self.message = code, message
        self.content = []
        return self.add_as_json({"code": code, "message": message, "error": error})

    def add_property(self, key: str, value: str) -> Output:
        self.properties[key] = str(value)
        return self

    def add(self, value: Any, key: str | None = None, batch_index: int | None = None) -> Output:
        """Add a content: bytes and text as they are, all else as JSON."""
        if isinstance(value, bytes | bytearray):
            data = bytes(value)
        elif isinstance(value, str):
            data = value.encode("utf-8", "replace")
        else:
            return self.add_as_json(value, key, batch_index)
        self.content.append((key, data))
        return self

    def add_as_json(
        self, value: Any, key: str | None = None, batch_index: int | None = None
    ) -> Output:
        self.properties.setdefault("Content-Type", "application/json")
        data = json.dumps(value, ensure_ascii=False, default=_plain)
        self.content.append((key, data.encode("utf-8", "replace")))
        return self

    def add_as_numpy(
        self, value: Any, key: str | None = None, batch_index: int | None = None
    ) -> Output:
        """Add arrays in npz format."""
        import numpy as np  # noqa: PLC0415

        buffer = io.BytesIO()
        np.savez(buffer, *(value if isinstance(value, list | tuple) else [value]))
        self.properties.setdefault("Content-Type", "tensor/npz")
        self.content.append((key, buffer.getvalue()))
        return self

    add_as_npz = add_as_numpy

    def add_stream_content(
        self,
        stream_content: Iterable[Any] | AsyncIterable[Any],
        output_formatter: Callable[[Any], bytes | str] | None = None,
    ) -> Output:
        """Answer in chunks; each is formatted, by default as a line of JSON with `outputs`."""
        self.stream_content, self.stream_formatter = stream_content, output_formatter
        self.properties.setdefault("Content-Type", "application/jsonlines")
        return self

    def finalize(self, function: Callable[..., Any], *arguments: Any) -> Output:
        """Call a function when the answer has been sent."""
        self.finalizer = (function, arguments)
        return self


def _plain(value: Any) -> Any:
    """Turn arrays and pydantic objects into what JSON has."""
    for name in ("model_dump", "tolist", "as_dict"):
        if hasattr(value, name):
            return getattr(value, name)()
    message = f"{type(value).__name__} cannot be written as JSON"
    raise TypeError(message)
