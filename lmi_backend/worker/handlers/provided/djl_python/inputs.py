"""What a handler is given."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final

_LITTLE: Final = 1 << 18
"""Bytes of JSON that cannot have many values."""
MOST_VALUES: Final = 1_000_000
"""Of larger JSON: 0.1 s for a reader."""


class Input:
    """A request: properties, which are HTTP headers and more, and contents by key.

    The first call of a handler gets an empty one, whose properties are the options.
    """

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.content: dict[str, bytes] = {}
        self.function_name = ""

    def get_function_name(self) -> str:
        return self.function_name

    def get_properties(self) -> dict[str, str]:
        return self.properties

    def get_property(self, key: str, default: str | None = None) -> str | None:
        """Return a property; case does not matter in its name."""
        if key in self.properties:
            return self.properties[key]
        lower = key.lower()
        values = (value for name, value in self.properties.items() if name.lower() == lower)
        return next(values, default)

    def get_content(self) -> Any:
        """Return the contents by key; `data` is the body."""
        return _Content(self.content)

    def contains_key(self, key: str) -> bool:
        return key in self.content

    def is_empty(self) -> bool:
        """Tell whether it holds nothing: the call that loads the model."""
        return not self.content

    def is_batch(self) -> bool:
        """Tell whether several requests come at once; here each comes alone."""
        return False

    def get_batch_size(self) -> int:
        return 1

    def get_batches(self) -> list[Input]:
        return [self]

    def get_as_bytes(self, key: str | None = None) -> bytes:
        """Return a content, the body unless a key is given; without one the first of its parts."""
        if key is not None:
            return self.content[key]
        return self.content.get("data", next(iter(self.content.values()), b""))

    def get_as_string(self, key: str | None = None) -> str:
        return self.get_as_bytes(key).decode("utf-8")

    def get_as_json(self, key: str | None = None) -> Any:
        """Return a content as the value its JSON stands for.

        Raises:
            ValueError: it is not JSON, or is large and has more than a million values. To read
                those stops the answers of all others; `get_as_bytes` returns them unread.
        """
        data = self.get_as_bytes(key)
        if len(data) <= _LITTLE:
            return json.loads(data)
        # A process that users start may have this folder alone.
        from lmi_backend.json_text import read_text  # noqa: PLC0415

        return read_text(data.decode(json.detect_encoding(data), "surrogatepass"), MOST_VALUES)

    def get_as_csv(self, key: str | None = None) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.get_as_string(key))))

    def get_as_image(self, key: str | None = None) -> Any:
        from PIL import Image  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        return Image.open(io.BytesIO(self.get_as_bytes(key))).convert("RGB")

    def get_as_numpy(self, key: str | None = None) -> list[Any]:
        """Return a content in npy or npz format as a list of arrays."""
        import numpy as np  # noqa: PLC0415

        loaded = np.load(io.BytesIO(self.get_as_bytes(key)), allow_pickle=False)
        return [loaded] if isinstance(loaded, np.ndarray) else [loaded[name] for name in loaded]

    get_as_npz = get_as_numpy

    def get_data(self, key: str | None = None) -> Any:
        """Return a content as its Content-Type says: JSON, text, image, arrays, or bytes."""
        kind = (self.get_property("Content-Type") or "").lower()
        if "json" in kind:
            return self.get_as_json(key)
        if kind.startswith("text/"):
            return self.get_as_string(key)
        if kind.startswith("image/"):
            return self.get_as_image(key)
        if "npz" in kind or "ndlist" in kind or "npy" in kind:
            return self.get_as_numpy(key)
        return self.get_as_bytes(key)


class _Content(dict[str, bytes]):
    """Contents, like LMI's pairs: found by key, or by index."""

    def size(self) -> int:
        return len(self)

    def get_keys(self) -> list[str]:
        return list(self)

    def get_values(self) -> list[bytes]:
        return list(self.values())

    def value_at(self, index: int) -> bytes:
        return list(self.values())[index]

    def key_at(self, index: int) -> str:
        return list(self)[index]
