"""Which tools a chat or a response may call, where vLLM's server would pass over what is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lmi_backend.clients.openai import CHATS
from lmi_backend.errors import RequestError

RESPONSES: Final = "/v1/responses"
_CHOICE: Final = "tool_choice"
_ALLOWED: Final = "allowed_tools"
_NAMED: Final = ("function", "custom")
_MESSAGES: Final = "/v1/messages"
_FORCED: Final = ("any", "tool")
"""Of Anthropic's messages: a tool has to be called."""
_ADDITION: Final = "tool_addition"
_MODES: Final = ("auto", "required")


def chosen(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return what `tools` and `tool_choice` become; nothing where vLLM reads them as they are.

    Tools that may not be called are left out.

    Raises:
        RequestError: a tool is chosen that OpenAI's own server would run, or a choice is no choice.
    """
    choice = fields.get(_CHOICE)
    if not isinstance(choice, dict) or path not in (CHATS, RESPONSES, _MESSAGES):
        return {}
    kind = choice.get("type")
    if path == _MESSAGES:
        if kind in _FORCED and not (fields.get("tools") or _adds_tools(fields.get("messages"))):
            raise RequestError("needs tools", field=_CHOICE, value=choice, accepted="auto, none")
        return {}
    if kind == _ALLOWED:
        return _allowed(choice.get(_ALLOWED) if path == CHATS else choice, fields.get("tools"))
    if path == RESPONSES and kind not in _NAMED:
        accepted = '"auto", "none", "required", or a type of ' + ", ".join((*_NAMED, _ALLOWED))
        raise RequestError("is not served", field=_CHOICE, value=choice, accepted=accepted)
    return {}


def _adds_tools(messages: Any) -> bool:
    """Tell whether a message of Anthropic's adds a tool, which vLLM 0.32 and later read."""
    listed = messages if isinstance(messages, list) else ()
    contents = [each.get("content") for each in listed if isinstance(each, dict)]
    parts = (part for each in contents if isinstance(each, list) for part in each)
    return any(isinstance(part, dict) and part.get("type") == _ADDITION for part in parts)


def _allowed(choice: Any, tools: Any) -> dict[str, Any]:
    mode = choice.get("mode") if isinstance(choice, dict) else None
    listed = choice.get("tools") if isinstance(choice, dict) else None
    if mode not in _MODES or not isinstance(listed, list):
        accepted = 'a mode of "auto" or "required", and tools'
        raise RequestError("is not a choice", field=_CHOICE, value=choice, accepted=accepted)
    names = {_name(each) for each in listed}
    kept = [each for each in tools or () if _name(each) in names - {""}]
    if {_name(each) for each in kept} != names:
        raise RequestError("names what is none of tools", field=_CHOICE, value=choice)
    return {"tools": kept, _CHOICE: mode}


def _name(tool: Any) -> str:
    """Return the name of a function, in a chat or in a response; empty for other tools."""
    if not isinstance(tool, dict) or tool.get("type") not in _NAMED:
        return ""
    inner = tool.get("function")
    name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
    return name if isinstance(name, str) else ""
