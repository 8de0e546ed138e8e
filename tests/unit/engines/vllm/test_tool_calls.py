"""Whole answers that are mended, and those of another kind, which stay as vLLM has made them."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import fast_paths, vllm_server
from lmi_backend.engines.vllm.vllm_server import MESSAGES

CHAT = "/v1/chat/completions"
REQUEST = SimpleNamespace(tools=[{}], tool_choice="auto")
CUT = "<tool_call>{"


class _Parser:
    def __init__(self, *_: Any) -> None: ...

    def extract_tool_calls_streaming(self, *_: Any) -> Any:
        return None


class _Server:
    """ToolAnswers with what it is told."""

    parser_cls = SimpleNamespace(tool_parser_cls=_Parser)

    def __init__(self, made: Any) -> None:
        self._made = made

    async def chat_completion_full_generator(self, request: Any, tokenizer: Any) -> Any:
        return self._made

    def create_error_response(self, message: str, **_: Any) -> Any:
        return SimpleNamespace(error=message)


def choice(*, calls: Any = None, reason: Any = "length") -> Any:
    message = SimpleNamespace(content=CUT, tool_calls=calls)
    return SimpleNamespace(message=message, finish_reason=reason, stop_reason=None)


def call(arguments: str) -> Any:
    return SimpleNamespace(function=SimpleNamespace(arguments=arguments))


def app_of(path: str, server: Any) -> Any:
    name = {CHAT: "openai_serving_chat", MESSAGES: "anthropic_serving_messages"}[path]
    state = SimpleNamespace(**{name: server})
    return SimpleNamespace(state=state, routes=[SimpleNamespace(path=path)])


async def answer(made: Any, path: str = CHAT) -> Any:
    """Return what a client gets where vLLM has made an answer."""
    server = _Server(made)
    vllm_server.attach_tool_answers(app_of(path, server))
    tokenizer = SimpleNamespace(encode=lambda text, **_: [])
    return await server.chat_completion_full_generator(REQUEST, tokenizer=tokenizer)


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})


async def test_a_cut_call_is_no_text() -> None:
    made = SimpleNamespace(choices=[choice(), choice(reason="stop")])
    assert await answer(made) is made
    assert [each.message.content for each in made.choices] == ["", CUT]
    assert fast_paths.is_on("whole_tool_calls")


async def test_an_error_is_handed_on() -> None:
    made = SimpleNamespace(error="no")
    assert await answer(made) is made
    assert fast_paths.is_on("whole_tool_calls")


async def test_a_message_has_no_arguments_that_are_no_object() -> None:
    made = SimpleNamespace(choices=[choice(calls=[call("true")], reason="tool_calls")])
    assert "no JSON object" in (await answer(made, MESSAGES)).error
    assert await answer(made, CHAT) is made
    cut = SimpleNamespace(choices=[choice(calls=[call("{}"), call("{")])])
    assert await answer(cut, MESSAGES) is cut
    assert [each.function.arguments for each in cut.choices[0].message.tool_calls] == ["{}"]
    assert fast_paths.is_on("whole_tool_calls")


@pytest.mark.parametrize(
    ("made", "came"),
    [
        ((SimpleNamespace(choices=[choice()]), None), "'tuple' object has no attribute 'choices'"),
        ({"choices": []}, "'dict' object has no attribute 'choices'"),
        (None, "'NoneType' object has no attribute 'choices'"),
        (SimpleNamespace(choices=iter([choice()])), "its choices is of type list_iterator"),
        (SimpleNamespace(choices=[choice(), choice(reason=7)]), "its finish_reason is of type int"),
        (SimpleNamespace(choices=[choice(calls=iter("a"))]), "its tool_calls is of type str"),
        (SimpleNamespace(choices=[SimpleNamespace(finish_reason="stop")]), "no attribute 'message"),
    ],
)
async def test_an_answer_of_another_kind_stays_as_it_is(
    made: Any, came: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await answer(made) is made
    assert not fast_paths.is_on("whole_tool_calls")
    assert came in caplog.text
    if isinstance(choices := getattr(made, "choices", None), list) and len(choices) == 2:
        assert choices[0].message.content == CUT


def test_a_chat_server_that_is_not_where_it_was_is_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = SimpleNamespace(state=SimpleNamespace(), routes=[SimpleNamespace(path=CHAT)])
    vllm_server.attach_tool_answers(app)
    assert "the application's state has no openai_serving_chat" in caplog.text
    assert not fast_paths.is_on("whole_tool_calls")


def test_an_application_that_answers_no_chats_lacks_nothing() -> None:
    vllm_server.attach_tool_answers(SimpleNamespace(state=SimpleNamespace(), routes=[]))
    assert fast_paths.is_on("whole_tool_calls")


def test_a_server_that_takes_no_other_method_keeps_its_own() -> None:
    class Fixed(_Server):
        __slots__ = ()

        def __setattr__(self, name: str, value: Any) -> None:
            if name != "_made":
                raise AttributeError(name)
            super().__setattr__(name, value)

    vllm_server.attach_tool_answers(app_of(CHAT, Fixed(None)))
    assert not fast_paths.is_on("whole_tool_calls")
