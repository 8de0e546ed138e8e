"""What bodies nest, and the tools that may be called: read, refused by name, or without effect."""

import json
import logging
from typing import Any

import pytest

from lmi_backend.clients.unserved import HOSTED, OFFERED, PARTS
from lmi_backend.engines import body_members
from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.errors import RequestError

RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
FUNCTION = {"type": "function", "name": "weather", "parameters": {}}
WEB = {"type": "web_search", "external_web_access": True}
ASKED = {"role": "user", "content": "Hello"}
REMINDER = {"role": "system", "content": "Be terse.", "clear_at": "next_user_message"}


def _read(path: str, body: dict[str, Any], **bounds: Any) -> dict[str, Any]:
    checked = check_body(json.dumps(body).encode(), BodyBounds(**bounds), path)
    read: dict[str, Any] = json.loads(checked.data)
    return read


def _result(*parts: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "1", "content": [*parts]}
    return {"messages": [{"role": "user", "content": [block]}]}


def _document() -> dict[str, Any]:
    return {"type": "document", "source": {"type": "text", "data": "Rome"}}


CHATS = "/v1/chat/completions"
IN_CHATS = [{"type": "function", "function": {"name": name}} for name in ("weather", "travel")]
IN_RESPONSES = [
    *({"type": "function", "name": name, "parameters": {}} for name in ("weather", "travel")),
    {"type": "web_search"},
]


def _in_chat(mode: Any, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def _in_response(mode: Any, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


def _of_user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}]}


def _chosen(choice: Any, path: str = RESPONSES) -> dict[str, Any]:
    return {"tools": IN_CHATS if path == CHATS else IN_RESPONSES, "tool_choice": choice}


OF_MESSAGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"output_config": {"task_budget": {"total": 9}}}, "output_config.task_budget"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    (_result(_document()), "document in messages[0], a tool_result"),
    (_result({"type": "text", "text": "a"}, {"type": "search_result"}), "search_result"),
    ({"system": [{"type": "image", "source": {}}]}, "image in system"),
    ({"messages": [{"role": "system", "content": [_document()]}]}, "document in messages[0]"),
    (
        {"messages": [REMINDER | {"output_config": {"effort": "low"}}]},
        "messages[0].output_config.effort",
    ),
    (_of_user({"source": {"file_id": "f"}}), "messages[0], a source.file_id"),
    ({"tools": [{"name": "a", "allowed_callers": ["code_execution_20250825"]}]}, "callers"),
)
OF_A_TOOL = {"type": "function_call_output", "output": [{"type": "input_image", "file_id": "f"}]}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        *((path, *each) for path in (MESSAGES, COUNT) for each in OF_MESSAGES),
        # A tool that nobody runs is refused unless agents always offer it beside others.
        *((RESPONSES, {"tools": [{"type": kind}]}, f"a tool {kind}") for kind in HOSTED),
        *(
            (RESPONSES, {"tools": [FUNCTION, {"type": kind}]}, f"a tool {kind}")
            for kind in sorted({*HOSTED} - {*OFFERED})
        ),
        (RESPONSES, {"input": [{"type": "additional_tools", "tools": [FUNCTION]}, ASKED]}, ""),
        (
            RESPONSES,
            {"input": [{"role": "assistant", "content": [{"type": "input_image"}]}, ASKED]},
            "",
        ),
        (RESPONSES, {"input": [ASKED | {"content": OF_A_TOOL["output"]}, ASKED]}, ""),
        (RESPONSES, {"input": [OF_A_TOOL, ASKED]}, ""),
        *(
            (RESPONSES, {"reasoning": {name: value, "effort": "low"}}, f"reasoning.{name}")
            for name, value in (("max_tokens", 5), ("enabled", False), ("exclude", True))
        ),
        *(
            (path, _chosen(choice, path), "tool_choice")
            for path, choice in (
                (RESPONSES, {"type": "web_search_preview"}),
                (RESPONSES, {"type": "mcp", "server_label": "x"}),
                (RESPONSES, {}),
                (RESPONSES, _in_response("auto", "nobody")),
                (RESPONSES, _in_response("none", "weather")),
                (RESPONSES, {"type": "allowed_tools", "mode": "auto"}),
                (RESPONSES, {"type": "allowed_tools", "mode": "auto", "tools": [WEB]}),
                (CHATS, _in_chat(None, "weather")),
                (CHATS, {"type": "allowed_tools"}),
                (CHATS, _in_chat("auto", "weather", "nobody")),
            )
        ),
    ],
)
def test_what_a_body_nests_that_is_not_served_is_refused_by_its_name(
    path: str, body: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError, match=r"accepted: |is none of tools") as refusal:
        _read(path, body)
    assert field in refusal.value.field


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (MESSAGES, {"output_config": {"task_budget": None, "effort": "low"}}),
        (MESSAGES, _result(*({"type": kind} for kind in PARTS))),
        (MESSAGES, _of_user({"type": "tool_result", "content": "a"})),
        (MESSAGES, {"messages": [{"role": "system", "content": [{"type": "tool_addition"}]}]}),
        (MESSAGES, {"system": [{"type": "text", "text": "a", "cache_control": {}}]}),
        (MESSAGES, {"tools": [{"allowed_callers": ["direct", "code_execution_20250825"]}]}),
        (MESSAGES, {"messages": [ASKED, REMINDER]}),
        (MESSAGES, {"messages": [REMINDER | {"clear_at": "never", "output_config": {}}, ASKED]}),
        (
            MESSAGES,
            {"messages": "no list", "system": {"no": "list"}, "tools": [1], "output_config": []},
        ),
        (MESSAGES, _chosen({"type": "any"})),
        *(
            (RESPONSES, {"input": [item]})
            for item in (
                {"role": "assistant", "content": "a"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
                {"role": "user", "content": [{"type": "input_text", "text": t} for t in "ab"]},
                {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text"}]},
                {"type": "item_reference", "id": "m"},
                {"type": "function_call_output", "output": "a"},
                OF_A_TOOL | {"output": [{"type": "input_image", "detail": "low"}]},
                "no object",
            )
        ),
        (RESPONSES, {"tools": [{"type": "code_interpreter"}], "tool_choice": "none"}),
        (RESPONSES, {"reasoning": {"enabled": True, "exclude": False, "max_tokens": None}}),
        (RESPONSES, _chosen("auto")),
        (RESPONSES, _chosen({"type": "function", "name": "weather"})),
        (RESPONSES, _chosen({"type": "custom", "name": "weather"})),
        (RESPONSES, _chosen(None)),
        (CHATS, _chosen("required")),
        (CHATS, _chosen({"type": "function", "function": {"name": "weather"}})),
        (CHATS, {"tools": [{"type": "mcp"}], "output_config": {}, "input": [OF_A_TOOL]}),
    ],
    ids=str,
)
def test_what_is_read_or_asks_for_nothing_stays(path: str, body: dict[str, Any]) -> None:
    assert _read(path, body) == body


def test_tools_may_be_offered_where_the_server_runs_them() -> None:
    body = {"tools": [{"type": "code_interpreter"}]}
    assert _read(RESPONSES, body, runs_tools=True) == body


def test_a_system_message_is_gone_when_the_user_has_written_again() -> None:
    long = {"role": "user", "content": "a" * 300_000}
    read = _read(MESSAGES, {"messages": [ASKED, REMINDER, long, REMINDER]})
    assert read["messages"] == [ASKED, long, REMINDER]


def test_what_codex_always_offers_is_left_out_and_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_members, "_noted", set())
    body = {"tools": [FUNCTION, WEB], "tool_choice": "auto"}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert _read(RESPONSES, body) == body
    assert caplog.messages == [
        "tool web_search of a response is left out: nobody runs it (logged once)"
    ]


@pytest.mark.parametrize("included", [None, [], ["reasoning.encrypted_content"]])
def test_log_probabilities_that_are_wanted_are_included(included: Any) -> None:
    read = _read(RESPONSES, {"input": "a", "top_logprobs": 2, "include": included})
    assert read["include"] == [*(included or ()), "message.output_text.logprobs"]
    body = {"input": [ASKED], "top_logprobs": 0}
    assert _read(RESPONSES, body) == body


def test_an_empty_answer_and_a_tools_images_are_what_the_server_can_read() -> None:
    image = {"type": "input_image", "image_url": "data:,"}
    output = {"type": "function_call_output", "call_id": "c", "output": [image, image]}
    read = _read(RESPONSES, {"input": [{"role": "assistant", "content": []}, output]})
    empty = {"type": "output_text", "text": "", "annotations": []}
    assert read["input"] == [
        {"role": "assistant", "content": [empty]},
        output | {"output": [image | {"detail": "auto"}] * 2},
    ]


@pytest.mark.parametrize("length", [1, 300_000])
def test_an_earlier_answer_is_read_whole(length: int) -> None:
    first, second = "a" * length, "b" * length
    parts = [{"type": "output_text", "text": first}, {"type": "refusal", "refusal": second}]
    thoughts = [{"type": "reasoning_text", "text": each} for each in "xy"]
    thought = {"type": "reasoning", "id": "r", "summary": []}
    read = _read(
        RESPONSES,
        {
            "input": [
                ASKED,
                thought | {"content": thoughts},
                {"type": "message", "role": "assistant", "content": parts, "status": "incomplete"},
            ]
        },
    )
    assert read["input"] == [
        ASKED,
        thought | {"content": [{"type": "reasoning_text", "text": "x\ny"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"{first}\n{second}", "annotations": []}],
            "status": "incomplete",
        },
    ]


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize(
    ("path", "tools", "choose"),
    [(CHATS, IN_CHATS, _in_chat), (RESPONSES, IN_RESPONSES, _in_response)],
    ids=["a chat", "a response"],
)
def test_tools_that_may_not_be_called_are_left_out(
    path: str, tools: list[Any], choose: Any, mode: str
) -> None:
    read = _read(path, {"tools": tools, "tool_choice": choose(mode, "travel")})
    assert read == {"tools": [tools[1]], "tool_choice": mode}


def test_a_tool_that_has_to_be_called_must_be_there() -> None:
    with pytest.raises(RequestError, match=r"tool_choice .* needs tools"):
        _read("/v1/messages", {"tool_choice": {"type": "any"}, "messages": 1})
    added = {"type": "tool_addition", "tool": {}}
    messages: list[Any] = [{"role": "system", "content": [added]}, {"content": "a"}, 1]
    body = {"tool_choice": {"type": "any"}, "messages": messages}
    assert _read("/v1/messages", body) == body
    free = {"tool_choice": {"type": "auto"}}
    assert _read("/v1/messages", free) == free
