"""What a response or an Anthropic message nests, where vLLM's server would pass over it.

It reads the first part of an earlier answer, and no document in a tool's result. It passes over
tools that OpenAI's own server would run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from lmi_backend.clients.unserved import HOSTED, ITEMS, OFFERED, PARTS, REASONING
from lmi_backend.engines.tool_choices import RESPONSES
from lmi_backend.errors import RequestError

_log = logging.getLogger(__name__)

MESSAGES: Final = ("/v1/messages", "/v1/messages/count_tokens")
_RESULT: Final = "tool_result"
_OF_SYSTEM: Final = ("text", "tool_addition", "tool_removal")
"""Types of the parts of a system message that vLLM's server reads."""
_DIRECT: Final = "direct"
"""The caller that is the model itself."""
_OF_ASSISTANT: Final = ("output_text", "input_text", "text", "refusal")
"""Types of the parts of an earlier answer in a response."""
_CLEARED: Final = "next_user_message"
_TEXTS: Final = {"content": "reasoning_text", "summary": "summary_text"}
"""Of an item of reasoning: member to the type of its parts."""
_LOGPROBS: Final = "message.output_text.logprobs"
"""Of `include`: without it vLLM's server passes over `top_logprobs`."""
_noted: Final[set[str]] = set()


def check_nested(fields: Mapping[str, Any], path: str, *, runs_tools: bool = False) -> None:
    """Refuse what limits or selects an answer and is not read where it stands.

    Args:
        runs_tools: whether the server has tools of its own for a response.

    Raises:
        RequestError: naming it, with what is accepted.
    """
    if path in MESSAGES:
        _check_messages(fields)
    elif path == RESPONSES:
        _check_response(fields, runs_tools=runs_tools)


def is_mendable(fields: Mapping[str, Any], path: str) -> bool:
    """Tell whether `mended` would change a body."""
    if path in MESSAGES:
        return any(True for _ in _cleared(fields.get("messages")))
    if path != RESPONSES:
        return False
    return bool(fields.get("top_logprobs")) or any(map(_is_mended, _listed(fields.get("input"))))


def mended(body: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a body as the engine's server reads all of it.

    Messages that are to be gone are left out. Earlier answers are in one part. Log probabilities
    are included where some are wanted.
    """
    if path in MESSAGES:
        gone = {*_cleared(body["messages"])}
        kept = [each for place, each in enumerate(body["messages"]) if place not in gone]
        return {**body, "messages": kept}
    items, included = body.get("input"), body.get("include") or []
    if isinstance(items, list):
        items = [_mended(each) if _is_mended(each) else each for each in items]
    if body.get("top_logprobs") and isinstance(included, list) and _LOGPROBS not in included:
        included = [*included, _LOGPROBS]
    return {**body, "input": items, "include": included or None}


def _check_messages(fields: Mapping[str, Any]) -> None:
    config = fields.get("output_config")
    _refuse_member(config, "task_budget", "output_config")
    form = config.get("format") if isinstance(config, dict) else None
    if isinstance(form, dict) and form.get("schema") is None:
        raise RequestError("has no schema", field="output_config.format", accepted="a schema")
    _check_callers(fields.get("tools"))
    _check_parts("system", fields.get("system"), ("text",))
    for place, message in enumerate(_listed(fields.get("messages"))):
        where, content = f"messages[{place}]", message.get("content")
        _refuse_member(message.get("output_config"), "effort", f"{where}.output_config")
        if message.get("role") == "system":
            _check_parts(where, content, _OF_SYSTEM)
        for part in _listed(content):
            _refuse_member(part.get("source"), "file_id", f"{where}, a source")
            if part.get("type") == _RESULT:
                _check_parts(f"{where}, a {_RESULT}", part.get("content"), PARTS)


def _check_response(fields: Mapping[str, Any], *, runs_tools: bool) -> None:
    for name, nothing in REASONING.items():
        _refuse_member(fields.get("reasoning"), name, "reasoning", nothing)
    for item in _listed(fields.get("input")):
        if item.get("type") in ITEMS:
            raise RequestError("is not served", field=f"an item {item['type']}", accepted="tools")
        for part in (*_listed(item.get("content")), *_listed(item.get("output"))):
            _refuse_member(part, "file_id", str(part.get("type")))
        if item.get("role") == "assistant":
            _check_parts("an earlier answer", item.get("content"), _OF_ASSISTANT)
    tools = [*_listed(fields.get("tools"))]
    _check_callers(tools)
    if runs_tools or fields.get("tool_choice") == "none":
        return
    kinds = [tool.get("type") for tool in tools]
    hosted = [kind for kind in kinds if kind in HOSTED]
    for kind in hosted:
        if kind not in OFFERED or len(hosted) == len(kinds):
            accepted = "function, custom, namespace"
            raise RequestError("is run by nobody here", field=f"a tool {kind}", accepted=accepted)
        if kind not in _noted:
            _noted.add(kind)
            _log.warning("tool %s of a response is left out: nobody runs it (said once)", kind)


def _check_callers(tools: Any) -> None:
    for tool in _listed(tools):
        callers = tool.get("allowed_callers")
        if isinstance(callers, list) and callers and _DIRECT not in callers:
            field = "allowed_callers of a tool"
            raise RequestError("is not served", field=field, value=callers, accepted=_DIRECT)


def _check_parts(where: str, parts: Any, read: Collection[str]) -> None:
    for part in _listed(parts):
        if (kind := part.get("type")) not in read:
            accepted = ", ".join(read)
            raise RequestError("is not read there", field=f"{kind} in {where}", accepted=accepted)


def _refuse_member(holder: Any, name: str, where: str, nothing: Any = None) -> None:
    """Refuse a member of an object, unless it has a value without effect."""
    value = holder.get(name) if isinstance(holder, dict) else None
    if value is not None and value != nothing:
        accepted = "nothing" if nothing is None else f"{json.dumps(nothing)} or nothing"
        raise RequestError("is not served", field=f"{where}.{name}", value=value, accepted=accepted)


def _cleared(messages: Any) -> Iterator[int]:
    """Yield the places of messages that are to be gone when the user has written again."""
    roles = [each.get("role") for each in _listed(messages)]
    if "user" not in roles or len(roles) < len(messages):
        return
    last = len(roles) - 1 - roles[::-1].index("user")
    for place, message in enumerate(_listed(messages)):
        if place < last and message.get("clear_at") == _CLEARED:
            yield place


def _is_mended(item: Any) -> bool:
    """Tell whether vLLM's server would read only the first part of an item, or fail at it."""
    if not isinstance(item, dict):
        return False
    if item.get("type") == "reasoning":
        return any(len([*_listed(item.get(name))]) > 1 for name in _TEXTS)
    if isinstance(item.get("output"), list):
        return any(_lacks_detail(part) for part in _listed(item["output"]))
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, list):
        return False
    return len(content) != 1 or any("refusal" in part for part in _listed(content))


def _mended(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item with all its texts in one part, or with the default of its images."""
    if item.get("type") == "reasoning":
        parts = {name: [*_listed(item.get(name))] for name in _TEXTS}
        joined = {
            name: [{"type": _TEXTS[name], "text": _text(listed)}] for name, listed in parts.items()
            if listed
        }  # fmt: skip
        return {**item, **joined}
    if isinstance(item.get("output"), list):
        output = [
            {**part, "detail": "auto"} if _lacks_detail(part) else part for part in item["output"]
        ]
        return {**item, "output": output}
    part = {"type": "output_text", "text": _text([*_listed(item["content"])]), "annotations": []}
    return {**item, "content": [part]}


def _lacks_detail(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "input_image" and "detail" not in part


def _text(parts: Collection[Mapping[str, Any]]) -> str:
    texts = (part.get("text", part.get("refusal")) for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _listed(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; nothing of another value."""
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
