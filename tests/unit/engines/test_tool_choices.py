"""Which tools may be called is what the client chose, or is refused."""

import json
from typing import Any

import pytest

from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.errors import RequestError

CHATS, RESPONSES = "/v1/chat/completions", "/v1/responses"
IN_CHATS = [{"type": "function", "function": {"name": name}} for name in ("weather", "travel")]
IN_RESPONSES = [
    *({"type": "function", "name": name, "parameters": {}} for name in ("weather", "travel")),
    {"type": "web_search"},
]


async def _read(path: str, body: dict[str, Any]) -> dict[str, Any]:
    data, _ = await check_body(json.dumps(body).encode(), BodyBounds(), path)
    read: dict[str, Any] = json.loads(data)
    return read


def _in_chat(mode: Any, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _in_response(mode: Any, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize(
    ("path", "tools", "choose"),
    [(CHATS, IN_CHATS, _in_chat), (RESPONSES, IN_RESPONSES, _in_response)],
    ids=["a chat", "a response"],
)
async def test_tools_that_may_not_be_called_are_left_out(
    path: str, tools: list[Any], choose: Any, mode: str
) -> None:
    read = await _read(path, {"tools": tools, "tool_choice": choose(mode, "travel")})
    assert read == {"tools": [tools[1]], "tool_choice": mode}


@pytest.mark.parametrize(
    ("path", "choice"),
    [
        (CHATS, "required"),
        (CHATS, {"type": "function", "function": {"name": "weather"}}),
        (RESPONSES, "auto"),
        (RESPONSES, {"type": "function", "name": "weather"}),
        (RESPONSES, {"type": "custom", "name": "weather"}),
        (RESPONSES, None),
        ("/v1/messages", {"type": "any"}),
    ],
    ids=json.dumps,
)
async def test_a_choice_that_the_server_reads_stays(path: str, choice: Any) -> None:
    body = {"tools": IN_RESPONSES, "tool_choice": choice}
    assert await _read(path, body) == body


@pytest.mark.parametrize(
    ("path", "choice"),
    [
        (RESPONSES, {"type": "web_search_preview"}),
        (RESPONSES, {"type": "mcp", "server_label": "x"}),
        (RESPONSES, {}),
        (RESPONSES, _in_response("auto", "nobody")),
        (RESPONSES, _in_response("none", "weather")),
        (RESPONSES, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}),
        (RESPONSES, {"type": "allowed_tools", "mode": "auto"}),
        (CHATS, _in_chat(None, "weather")),
        (CHATS, {"type": "allowed_tools"}),
        (CHATS, _in_chat("auto", "weather", "nobody")),
    ],
    ids=json.dumps,
)
async def test_a_choice_that_nothing_here_serves_is_refused(path: str, choice: Any) -> None:
    tools = IN_CHATS if path == CHATS else IN_RESPONSES
    with pytest.raises(RequestError) as refused:
        await _read(path, {"tools": tools, "tool_choice": choice})
    assert refused.value.field == "tool_choice"


async def test_a_tool_that_has_to_be_called_must_be_there() -> None:
    with pytest.raises(RequestError, match=r"tool_choice .* needs tools"):
        await _read("/v1/messages", {"tool_choice": {"type": "any"}, "messages": 1})
    added = {"type": "tool_addition", "tool": {}}
    messages: list[Any] = [{"role": "system", "content": [added]}, {"content": "a"}, 1]
    body = {"tool_choice": {"type": "any"}, "messages": messages}
    assert await _read("/v1/messages", body) == body
    free = {"tool_choice": {"type": "auto"}}
    assert await _read("/v1/messages", free) == free
