"""Bodies to values and back, by Content-Type."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from .inputs import Input
from .outputs import Output

_HEADERS = ("question", "context", "inputs")
"""One of them is in the first line of a CSV body."""


def decode(
    inputs: Input,
    content_type: str | None = None,
    key: str | None = None,
    require_csv_headers: bool = True,
) -> Any:
    """Return the value of a body: JSON as it is, anything else under `inputs`.

    Raises:
        ValueError: it is not what its type says.
    """
    kind = (content_type or inputs.get_property("Content-Type") or "").lower()
    if not kind and not inputs.get_as_bytes(key):
        return {"inputs": ""}
    if not kind or "json" in kind:
        return inputs.get_as_json(key)
    if "csv" in kind:
        return decode_csv(inputs, require_csv_headers)
    return {"inputs": _value(inputs, kind, key)}


def decode_csv(inputs: Input, require_headers: bool = True) -> Any:
    """Return the rows of a CSV body by its header, or its numbers where it needs none.

    Raises:
        ValueError: it has no header that LMI knows, or something is not a number.
    """
    text = inputs.get_as_string()
    if not require_headers:
        return _numbers(text)
    header = next(iter(text.splitlines()), "")
    if not any(name in header.lower() for name in _HEADERS):
        message = f"the first line of the CSV {header[:80]!r} names no column; accepted: "
        raise ValueError(message + ", ".join(_HEADERS))
    rows = list(csv.DictReader(io.StringIO(text)))
    is_column = bool(rows) and "inputs" in rows[0]
    return {"inputs": [row["inputs"] for row in rows] if is_column else rows}


def encode_csv(content: Iterable[dict[str, Any]]) -> str:
    """Return rows as CSV, with the names of the first row's members above them."""
    rows = list(content)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, rows[0].keys() if rows else ())
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _numbers(text: str) -> Any:
    import numpy as np  # noqa: PLC0415

    numbers = np.genfromtxt(io.StringIO(text), delimiter=",")
    if np.isnan(numbers).any():
        message = "the CSV holds something that is not a number; accepted: numbers only"
        raise ValueError(message)
    return numbers


def _value(inputs: Input, kind: str, key: str | None) -> Any:
    if "text/plain" in kind:
        return [inputs.get_as_string(key)]
    if "x-www-form-urlencoded" in kind:
        return inputs.get_as_string(key)
    if kind.startswith("image/"):
        return inputs.get_as_image(key)
    if any(word in kind for word in ("npz", "ndlist", "npy")):
        return inputs.get_as_numpy(key)
    return inputs.get_as_bytes(key)


def encode(
    outputs: Output, prediction: Any, accept: str | None = None, key: str | None = None
) -> Output:
    """Add a value to an answer in the format that is accepted."""
    kind = (accept or "application/json").lower()
    if "npz" in kind or "ndlist" in kind:
        return outputs.add_as_npz(prediction, key)
    if "csv" in kind and _is_rows(prediction):
        outputs.add_property("Content-Type", "text/csv")
        return outputs.add(encode_csv(prediction), key)
    if "text/" in kind and isinstance(prediction, str):
        outputs.add_property("Content-Type", kind)
        return outputs.add(prediction, key)
    return outputs.add_as_json(json.loads(json.dumps(prediction, default=_plain)), key)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
