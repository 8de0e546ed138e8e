"""Write protobuf text format, as far as config.pbtxt needs it."""

from __future__ import annotations

import json

from lmi_backend.repository.model_config import Word


def render(message: dict[str, object]) -> str:
    """Return a message as protobuf text; a list of messages becomes a repeated field."""
    return "".join(_field(name, value, "") for name, value in message.items())


def _field(name: str, value: object, indent: str) -> str:
    if isinstance(value, list):
        if all(isinstance(item, dict) for item in value):
            return "".join(_field(name, item, indent) for item in value)
        return f"{indent}{name}: [ {', '.join(_scalar(item) for item in value)} ]\n"
    if isinstance(value, dict):
        body = "".join(_field(key, item, indent + "  ") for key, item in value.items())
        return f"{indent}{name} {{\n{body}{indent}}}\n"
    return f"{indent}{name}: {_scalar(value)}\n"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        # JSON's escapes are a subset of protobuf's, once characters stay as they are.
        return json.dumps(value, ensure_ascii=False)
    return str(value)
