"""Which chats are answered past the server, and how."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.clients.openai import CHATS
from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.engines.vllm import fast_paths, names, streams
from lmi_backend.engines.vllm.bodies import (
    BodyAnswer,
    BodyKind,
    Kinds,
    SeenRenderer,
    current_answer,
)
from lmi_backend.engines.vllm.chats import Chat, Chats
from lmi_backend.generation import HttpChunk, HttpRequest
from tests.support.run.waiting import HANG_SECONDS, turns
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink, client_of
from tests.unit.engines.vllm.vllm_parts import FinishReason, Output, Params
from tests.unit.engines.vllm.vllm_server import OpenAIServingChat, Parser, read_events
from tests.unit.engines.vllm.vllm_server import body as read_body

pytestmark = pytest.mark.usefixtures("vllm")

HELLO = [{"role": "user", "content": "hello"}]
REFUSED = [{"role": "user", "content": "refused"}]
BODY: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 3, "messages": HELLO}
HEAD = HttpChunk(headers={"content-type": "text/event-stream"})


class Renderer:
    """Has what vLLM's has; its prompts have three tokens a message."""

    tokenizer = None

    async def render_chat_async(self, chats: list[Any], *given: Any, **named: Any) -> Any:
        """Return chats and prompts."""
        if "refused" in str(chats):
            raise ValueError("no template for it")
        return chats, [{"prompt_token_ids": [101, 102, 103] * len(each)} for each in chats]


class Server:
    """An engine and vLLM's server of chats around it."""

    def __init__(self) -> None:
        self.engine = AsyncLLM(b"abcdefgh")
        self.client = client_of(self.engine)
        self.chats = Chats(self.client, Kinds())
        self.serving: Any = OpenAIServingChat()
        self.serving.renderer = SeenRenderer(Renderer())
        streams.attach(
            SimpleNamespace(state=SimpleNamespace(openai_serving_chat=self.serving), routes=[])
        )
        self.chats.attach(self.serving)

    def answer(self, chat: Chat, sink: Sink) -> BodyAnswer:
        answer = BodyAnswer(sink, self.engine, sends_ids=True, kind=lambda: chat.kind)
        answer.begin(HEAD)
        current_answer.set(answer)
        return answer

    async def teach(
        self, body: dict[str, Any] = BODY, headers: dict[str, str] | None = None, **changed: Any
    ) -> BodyKind:
        """Answer a body by vLLM's server, and note what it makes of it."""
        chat = read(self, body, headers)
        answer = self.answer(chat, Sink())
        rendered = await self.serving.renderer.render_chat_async([chat.messages], "template")
        prompt = changed.pop("prompt", rendered[1][0])
        room = 64 - len(prompt["prompt_token_ids"])
        limit = room if chat.limit is None else chat.limit
        answer_id = f"chatcmpl-{chat.request_id or '0123456789abcdef'}"
        answer_id = changed.pop("answer_id", answer_id)
        lora = changed.pop("lora_request", None)
        wanted: dict[str, Any] = {"max_tokens": limit} | changed
        params = Params(**wanted)
        outputs = self.client.generate(prompt, params, answer_id, lora_request=lora)
        asked = read_body(messages=chat.messages)
        stream = self.serving.chat_completion_stream_generator(
            asked, outputs, answer_id, "lmi", [], None, None, chat_template_kwargs={}
        )
        async for event in stream:
            answer.take(HttpChunk(event.encode()))
        self.chats.note(chat, answer)
        kind: BodyKind = chat.kind
        return kind


@pytest.fixture
def server() -> Server:
    return Server()


def read(server: Server, body: Any, headers: dict[str, str] | None = None) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    checked = check_body(data, BodyBounds(), CHATS)
    return server.chats.read(HttpRequest(CHATS, data, headers or {}), checked)


@pytest.mark.parametrize(
    "body",
    [
        BODY | {"stream": False},
        {name: each for name, each in BODY.items() if name != "stream"},
        BODY | {"parallel_tool_calls": False},
        BODY | {"nobody_knows": None},
        BODY | {"max_tokens": "5"},
        BODY | {"user": 5},
        BODY | {"messages": []},
        BODY | {"messages": [{"role": "user", "content": "a", "name": "b"}]},
        BODY | {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        BODY | {"messages": [HELLO[0] | {"content": "a" * 300_000}]},
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "stream": true}',
        b"\xef\xbb\xbf" + json.dumps(BODY).encode(),
    ],
)
def test_what_is_not_listed_is_the_servers(server: Server, body: Any) -> None:
    assert read(server, BODY) is not None
    assert read(server, body) is None


@pytest.mark.parametrize("headers", [{"traceparent": "00-1-2-03"}, {"content-type": "text/plain"}])
def test_a_header_that_the_server_may_read_is_the_servers(
    server: Server, headers: dict[str, str]
) -> None:
    assert read(server, BODY, {"content-type": "application/json; charset=utf-8"}) is not None
    assert read(server, BODY, headers) is None


async def respond(server: Server, body: Any, headers: Any = None) -> tuple[bool, Sink]:
    chat, sink = read(server, body, headers), Sink()
    responding = server.chats.respond(chat, server.answer(chat, sink))
    return await asyncio.wait_for(responding, HANG_SECONDS), sink


async def test_the_second_of_a_kind_is_answered_as_the_first_without_the_server(
    server: Server,
) -> None:
    assert (await respond(server, BODY))[0] is False
    await server.teach()
    server.serving.chat_completion_stream_generator = None
    messages = [*HELLO, {"role": "assistant", "content": "b"}]
    # The core's text goes on behind a prompt that is longer.
    is_answered, sink = await respond(server, BODY | {"messages": messages, "max_tokens": 2})
    assert is_answered
    assert [each.num_tokens for each in sink.taken] == [1, 1]
    texts = [
        each["choices"][0]
        for chunk in sink.taken
        for each in read_events(chunk.data)
        if type(each) is dict
    ]
    assert [each["delta"].get("content") for each in texts] == ["", "d", "e"]
    assert (texts[-1]["finish_reason"], sink.taken[-1].is_last) == ("length", True)
    assert sink.taken[0].headers == HEAD.headers
    assert server.engine.engine_core.added[-1].sampling_params.max_tokens == 2
    # As long as vLLM's own, and another one each time.
    (own_id,) = {json.loads(each.data.split(b"\n")[0][6:])["id"] for each in sink.taken[:1]}
    assert len(own_id) == len("chatcmpl-0123456789abcdef")
    assert own_id != "chatcmpl-0123456789abcdef"


async def test_the_id_of_a_request_is_its_answers(server: Server) -> None:
    headers = {"X-Request-Id": "7"}
    assert (await server.teach(headers=headers)).template is not None
    assert (await respond(server, BODY))[0] is False
    _, sink = await respond(server, BODY, {"x-request-id": "8"})
    assert b'"id":"chatcmpl-8"' in sink.taken[0].data


async def test_a_limit_of_all_there_is_hangs_on_the_prompt(server: Server) -> None:
    body = BODY | {"max_tokens": None}
    kind = await server.teach(body)
    assert kind.template is not None
    assert kind.template.is_rest
    prompt, params = await server.chats.prompt(
        read(server, body | {"messages": HELLO * 2}), kind.template
    )
    assert params.max_tokens == 64 - len(prompt["prompt_token_ids"]) == 58
    server.serving.default_sampling_params = {"max_tokens": 61}
    assert (await server.teach(body | {"seed": 1})).template is None


@pytest.mark.parametrize(
    "changed",
    [
        {"max_tokens": 4},
        {"prompt": {"prompt_token_ids": [101, 102, 103]}},
        {"lora_request": SimpleNamespace(lora_name="red")},
        {"extra_args": {"a": 1}},
        {"answer_id": "other-1"},
        {"logprobs": 0},
    ],
)
async def test_what_the_server_does_otherwise_is_not_noted(
    server: Server, changed: dict[str, Any]
) -> None:
    server.client.adapters = SimpleNamespace(is_loaded=lambda name: True)  # type: ignore[assignment]
    assert (await server.teach(**changed)).template is None
    assert (await server.teach()).template is not None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(BODY | {"max_tokens": 64}, id="more than there is room for"),
        pytest.param(BODY | {"max_tokens": 0}, id="no token"),
        pytest.param(BODY | {"messages": HELLO * 30}, id="too long"),
        pytest.param(BODY | {"messages": REFUSED}, id="a refused prompt"),
    ],
)
async def test_what_the_server_may_refuse_is_left_to_it(server: Server, body: Any) -> None:
    await server.teach()
    assert read(server, body).kind is read(server, BODY).kind
    is_answered, sink = await respond(server, body)
    assert (is_answered, sink.taken) == (False, [])


async def test_a_platform_may_refuse(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.teach()
    platform = SimpleNamespace(get_max_output_tokens=lambda num_prompt_tokens: 2)
    monkeypatch.setitem(vars(names), "current_platform", platform)
    assert (await respond(server, BODY))[0] is False


async def test_a_request_that_vllm_refuses_before_a_chunk_is_the_servers(server: Server) -> None:
    await server.teach()

    async def refuse(**_: Any) -> Any:
        raise ValueError("refused")

    vars(server.engine)["add_request"] = refuse
    is_answered, sink = await respond(server, BODY)
    assert (is_answered, sink.taken) == (False, [])


async def test_an_engine_that_takes_no_more_is_asked_once(server: Server) -> None:
    await server.teach()

    class FullError(Exception):
        http_status = 503

    async def refuse(**_: Any) -> Any:
        raise FullError

    vars(server.engine)["add_request"] = refuse
    with pytest.raises(FullError):
        await respond(server, BODY)


async def test_an_error_in_mid_stream_is_told_in_the_servers_words(server: Server) -> None:
    await server.teach()
    server.engine.engine_core.text = []
    task = asyncio.ensure_future(respond(server, BODY))
    await turns()
    name = server.engine.engine_core.added[-1].request_id
    server.engine.step(Output(name, [97]))
    server.engine.step(Output(name, [98], finish_reason=FinishReason.ERROR))
    is_answered, sink = await task
    assert is_answered
    *_, error, done = read_events(b"".join(each.data for each in sink.taken))
    assert "Internal server error" in error["error"]["message"]
    assert done == b"data: [DONE]"
    assert [each.is_last for each in sink.taken].count(True) == 1


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "renderer",
            SeenRenderer(SimpleNamespace(render_chat_async=lambda: None)),
            "is no coroutine",
        ),
        ("renderer", Renderer(), "it has its own Renderer"),
        # It looks at each body.
        ("request_logger", object(), ""),
    ],
)
def test_with_another_renderer_or_a_logger_the_server_reads_every_chat(
    server: Server, name: str, value: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    setattr(server.serving, name, value)
    server.chats = Chats(server.client, Kinds())
    server.chats.attach(server.serving)
    assert reason in caplog.text
    assert read(server, BODY) is None
    assert fast_paths.is_on("own_streams")


async def test_a_parser_reads_the_text_of_a_known_chat_with_its_own_messages(
    server: Server,
) -> None:
    seen: list[Any] = []

    class Reader(Parser):
        def parse_delta(self, *given: Any, request: Any, **named: Any) -> Any:
            seen.append(request.messages)
            return super().parse_delta(*given, request=request, **named)

    server.serving.parser_cls = Reader
    await server.teach()
    chat, sink = read(server, BODY | {"messages": HELLO * 2}), Sink()
    assert await server.chats.respond(chat, server.answer(chat, sink))
    assert seen[0] == HELLO
    assert seen[-1] == HELLO * 2
    server.serving.parser_cls = None
    chat = read(server, BODY)
    assert not await server.chats.respond(chat, server.answer(chat, sink))
