"""Bound the white space of structural tags, such as vLLM makes for the strict tools of a chat.

`disable_any_whitespace` of vLLM 0.32 holds for schemas only. A small model writes white space
without end in a tag, until its tokens are used up.
"""

from __future__ import annotations

import json
from typing import Any, Final

_MOST: Final = 1
"""White space between two tokens of JSON; xgrammar takes no 0."""
_BOUND: Final = "max_whitespace_cnt"
_SCHEMA: Final = "json_schema"


def bounded(text: str) -> str:
    """Return a structural tag whose JSON has no runs of white space.

    What is no tag that xgrammar reads is returned as it is: vLLM says what is wrong with it.
    """
    try:
        tag = json.loads(text)
        if "structures" in tag:
            tag = _newer(tag)
        _bound(tag["format"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return text
    return json.dumps(tag)


def _newer(tag: dict[str, Any]) -> dict[str, Any]:
    """Return a tag of the older format, which has no such bound, in the newer one."""
    tags = [
        {
            "type": "tag",
            "begin": each["begin"],
            "content": {"type": _SCHEMA, _SCHEMA: each["schema"]},
            "end": each["end"],
        }
        for each in tag["structures"]
    ]
    triggered = {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}
    return {"type": "structural_tag", "format": triggered}


def _bound(part: Any) -> None:
    if isinstance(part, list):
        for each in part:
            _bound(each)
    elif isinstance(part, dict) and part.get("type") == _SCHEMA:
        if part.get(_BOUND) is None:
            part[_BOUND] = _MOST
    elif isinstance(part, dict):
        _bound(list(part.values()))
