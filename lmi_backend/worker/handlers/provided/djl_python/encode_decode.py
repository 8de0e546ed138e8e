"""Bodies to values and back, by Content-Type."""

from __future__ import annotations

import json
from typing import Any

from .inputs import Input
from .outputs import Output


def decode(inputs: Input, content_type: str | None = None, key: str | None = None) -> Any:
    """Return the value of a body: JSON as it is, anything else under `inputs`."""
    kind = (content_type or inputs.get_property("Content-Type") or "application/json").lower()
    if "json" in kind:
        return inputs.get_as_json(key)
    if "csv" in kind:
        rows = inputs.get_as_csv(key)
        is_column = bool(rows) and "inputs" in rows[0]
        return {"inputs": [row["inputs"] for row in rows] if is_column else rows}
    return {"inputs": _value(inputs, kind, key)}


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
    """Add a value to an answer in the form that is accepted."""
    kind = (accept or "application/json").lower()
    if "npz" in kind or "ndlist" in kind:
        return outputs.add_as_npz(prediction, key)
    if "text/" in kind and isinstance(prediction, str):
        outputs.add_property("Content-Type", kind)
        return outputs.add(prediction, key)
    return outputs.add_as_json(json.loads(json.dumps(prediction, default=_plain)), key)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
