"""Look at an OpenAI body before vLLM's server does: at its names, and at what is to be compiled.

vLLM 0.32 itself bounds the nesting of a schema and the time of a regular expression, nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lmi_backend.errors import RequestError
from lmi_backend.names import check_name
from lmi_backend.structures import StructureBounds, check_structure

NAMES: Final = (
    "model", "user", "request_id", "session_id", "cache_salt", "prompt_cache_key",
    "safety_identifier", "previous_response_id",
)  # fmt: skip
"""Fields that name something; vLLM sends some of them back, and logs some."""
STRUCTURES: Final = (
    "response_format", "structured_outputs", "tools", "tool_choice", "text", "output_config",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_whitespace_pattern",
)  # fmt: skip
"""Fields of chats, completions, responses and Anthropic's messages of which a grammar is made.
vLLM took those called guided_ before 0.12."""

# Whatever else is in a body, images above all, is passed over and never built.
_DECODER: Final = msgspec.json.Decoder(
    msgspec.defstruct("Fields", [(name, Any, None) for name in (*NAMES, *STRUCTURES)])
)


def check_body(body: bytes, bounds: StructureBounds) -> None:
    """Check a body; one that is not a JSON object is left to the server, which refuses it.

    Raises:
        RequestError: a name is too long, or a structured output too large.
    """
    try:
        fields = _fields(body)
    except RecursionError:
        raise RequestError("is nested too deeply", field="the body") from None
    for name in NAMES:
        if isinstance(value := fields.get(name), str):
            check_name(name, value)
    for name in STRUCTURES:
        if fields.get(name) is not None:
            check_structure(name, fields[name], bounds)


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.structs.asdict(_DECODER.decode(body))
    except msgspec.ValidationError:
        return {}
    except msgspec.DecodeError:
        pass
    try:
        # As vLLM's server reads it: with NaN, and in other encodings.
        read = json.loads(body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
