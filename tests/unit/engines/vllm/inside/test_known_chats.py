"""Which chats are of one kind, and when enough is known of a kind."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi_backend.engines.body_texts import MOST_ITEMS
from lmi_backend.engines.vllm.inside import fast_paths, names, seeded_steps
from lmi_backend.engines.vllm.inside.body_kind import BodyKind
from lmi_backend.engines.vllm.inside.chat_lessons import AnswerId, Learnt, Lesson, lessons
from lmi_backend.engines.vllm.inside.event_layouts import ChatLayouts
from lmi_backend.engines.vllm.inside.known_chats import KnownChats
from lmi_backend.engines.vllm.inside.learnt_kinds import AT_ONCE, MOST_KINDS, TRIES
from lmi_backend.generation import Continuation, HttpRequest
from lmi_backend.outline import LARGE, at_once, outline
from tests.unit.engines.vllm.inside.test_event_layouts import OUTPUTS, STREAMS, whole

PATH = "/v1/chat/completions"
LONGEST = 64
HELLO = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 5, "messages": HELLO}
TOKENS = [1, 2, 3]


class Renderer:
    """Has what vLLM's has; its prompts have a token a message."""

    async def render_chat_async(self, chats: list[Any], *given: Any, **named: Any) -> Any:
        """Return chats and prompts."""
        if given != ("template",):
            raise ValueError(given)
        return chats, [{"prompt_token_ids": TOKENS * len(each)} for each in chats]


class Params(SimpleNamespace):
    """Has what is read of vLLM's."""


def known_chats(renderer: Any = None) -> KnownChats:
    engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=LONGEST))
    found = KnownChats(engine, sends_ids=False)
    found.attach(SimpleNamespace(request_logger=None, renderer=renderer or Renderer()))
    return found


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setitem(vars(names), "current_platform", SimpleNamespace())


@pytest.fixture
def chats() -> KnownChats:
    return known_chats()


def read(chats: KnownChats, body: Any, headers: dict[str, str] | None = None) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return chats.read(HttpRequest(PATH, data, headers or {}), at_once(outline(data)))


def test_bodies_that_differ_in_their_messages_are_of_one_kind(chats: KnownChats) -> None:
    one = read(chats, BODY | {"user": "a"})
    other = read(chats, BODY | {"user": "b", "messages": [*HELLO, *HELLO]})
    assert one.kind is other.kind
    assert (one.messages, other.messages) == (HELLO, [*HELLO, *HELLO])
    assert (one.limit, one.request_id) == (5, "")


@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": 6},
        {"temperature": 0},
        {"seed": 1},
        {"stop": "a"},
        {"stream_options": {"include_usage": True}},
        {"model": "n"},
        {"max_completion_tokens": 5},
    ],
)
def test_each_other_value_is_another_kind(chats: KnownChats, more: dict[str, Any]) -> None:
    assert read(chats, BODY).kind is not read(chats, BODY | more).kind


def test_a_body_whose_request_has_an_id_is_another_kind(chats: KnownChats) -> None:
    one, other = read(chats, BODY), read(chats, BODY, {"X-Request-Id": "7"})
    assert one.kind is not other.kind
    assert other.request_id == "7"


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"max_tokens": None}, None),
        ({"max_completion_tokens": 3}, 3),
        ({"max_tokens": 3, "max_completion_tokens": None}, 3),
    ],
)
def test_the_limit_is_the_one_that_vllm_reads(
    chats: KnownChats, limits: dict[str, Any], limit: int | None
) -> None:
    assert read(chats, BODY | limits).limit == limit


@pytest.mark.parametrize(
    "body",
    [
        BODY | {"stream": False},
        BODY | {"stream": 1},
        {name: each for name, each in BODY.items() if name != "stream"},
        {name: each for name, each in BODY.items() if name != "messages"},
        BODY | {"tools": []},
        BODY | {"nobody_knows": None},
        BODY | {"request_id": "7"},
        BODY | {"max_tokens": "5"},
        BODY | {"max_tokens": 5.0},
        BODY | {"max_tokens": True},
        BODY | {"user": 5},
        BODY | {"messages": []},
        BODY | {"messages": "hello"},
        BODY | {"messages": [*HELLO, {"role": "tool", "content": "a"}]},
        BODY | {"messages": [{"role": "user", "content": "a", "name": "b"}]},
        BODY | {"messages": [{"role": "user", "content": None}]},
        BODY | {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        BODY | {"messages": [{"role": "user"}]},
        BODY | {"stop": ["a" * 5000]},
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "stream": true}',
        b'{"messages": [{"role": "user", "content": "a"}], "stream": true, "seed": NaN}',
        b"\xef\xbb\xbf" + json.dumps(BODY).encode(),
        b"[]",
        b"",
    ],
)
def test_what_is_not_listed_is_of_no_kind(chats: KnownChats, body: Any) -> None:
    assert read(chats, body) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"x-session-id": "7"},
        {"traceparent": "00-1-2-03"},
        {"content-type": "text/plain"},
        {":method": "PUT"},
        {"origin": "https://pages.example"},
    ],
)
def test_a_header_that_the_server_may_read_is_of_no_kind(
    chats: KnownChats, headers: dict[str, str]
) -> None:
    assert read(chats, BODY, {"content-type": "application/json; charset=utf-8"}) is not None
    assert read(chats, BODY, headers) is None


def test_what_resumes_is_of_no_kind(chats: KnownChats) -> None:
    data = json.dumps(BODY).encode()
    request = HttpRequest(PATH, data, {}, Continuation(b""))
    assert chats.read(request, at_once(outline(data))) is None


def test_few_kinds_are_kept_those_that_came_last(chats: KnownChats) -> None:
    first, second = read(chats, BODY), read(chats, BODY | {"seed": -1})
    for seed in range(MOST_KINDS - 1):
        read(chats, BODY | {"seed": seed})
        assert read(chats, BODY).kind is first.kind
    assert read(chats, BODY | {"seed": -1}).kind is not second.kind
    assert len(chats._kinds) == MOST_KINDS


def learnt(**more: Any) -> Learnt:
    outputs = OUTPUTS[0]
    layouts = ChatLayouts.of(whole(STREAMS[0], outputs, (1, 2)), outputs, STREAMS[0], (1, 2))
    assert layouts is not None
    usual = {
        "rendering": (("template",), {}), "params": Params(min_tokens=0, max_tokens=1),
        "is_rest": False, "answer_id": AnswerId("chatcmpl-", 16), "headers": {}, "layouts": layouts,
    }  # fmt: skip
    return Learnt(**usual | more)


def lesson(found: Learnt | None, num_prompt_tokens: int = 3) -> Lesson:
    return cast(Lesson, SimpleNamespace(learnt=lambda: found, num_prompt_tokens=num_prompt_tokens))


def taught(*found: Lesson, needs_content: bool = True) -> BodyKind:
    kind = BodyKind()
    for each in found:
        assert not kind.is_known
        kind.learn(each, needs_content=needs_content)
    return kind


def test_two_answers_that_agree_are_enough() -> None:
    assert not taught(lesson(learnt())).is_known
    assert taught(lesson(learnt()), lesson(learnt())).is_known
    assert taught(lesson(None), lesson(learnt()), lesson(None), lesson(learnt())).is_known


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"x-server": "1"}},
        {"params": Params(min_tokens=1, max_tokens=1)},
        {"rendering": (("another",), {})},
        {"answer_id": AnswerId("chatcmpl-", 32)},
    ],
)
def test_answers_that_differ_end_it(more: dict[str, Any]) -> None:
    kind = taught(lesson(learnt()), lesson(learnt(**more)))
    assert not kind.is_known
    assert not kind.may_learn


def test_arguments_that_cannot_be_compared_end_it() -> None:
    class Array:
        def __eq__(self, _: object) -> Any:
            raise ValueError("an array has no truth")

        __hash__ = None  # type: ignore[assignment]

    ours, theirs = (lesson(learnt(rendering=((Array(),), {}))) for _ in range(2))
    assert not taught(ours, theirs).is_known


def test_what_a_prompt_leaves_is_told_by_two_prompts() -> None:
    rest = learnt(is_rest=True)
    assert not taught(lesson(rest, 3), lesson(rest, 3)).is_known
    assert taught(lesson(rest, 3), lesson(rest, 3), lesson(rest, 4)).is_known


def test_a_middle_must_have_been_seen_unless_there_is_none() -> None:
    only = [OUTPUTS[0][-1]]
    layouts = ChatLayouts.of(whole(STREAMS[0], only, (1, 2)), only, STREAMS[0], (1, 2))
    short = learnt(layouts=layouts)
    assert not taught(lesson(short), lesson(short)).is_known
    assert taught(lesson(short), lesson(short), needs_content=False).is_known
    kind = taught(lesson(short), lesson(learnt()))
    assert kind.learnt == learnt()


def test_a_kind_that_tells_nothing_is_given_up() -> None:
    assert not taught(*[lesson(None)] * TRIES).may_learn


def test_the_first_body_of_a_kind_and_those_beyond_a_few_are_not_looked_at(
    chats: KnownChats,
) -> None:
    chat = read(chats, BODY)
    with chats.learning(chat):
        assert lessons.get() is None
    seen: list[Any] = []

    def fail() -> None:
        with chats.learning(chat):
            seen.append(lessons.get())
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    assert seen[0] is not None
    assert lessons.get() is None
    assert (chat.kind.num_open, chat.kind.may_learn) == (0, True)
    chat.kind.num_open = AT_ONCE
    with chats.learning(chat):
        assert lessons.get() is None
    with chats.learning(None):
        assert lessons.get() is None


@pytest.mark.parametrize(
    ("found", "body"),
    [
        pytest.param(learnt(), BODY | {"max_tokens": LONGEST}, id="more than there is room for"),
        pytest.param(learnt(), BODY | {"max_tokens": 0}, id="no token"),
        pytest.param(
            learnt(params=Params(min_tokens=6, max_tokens=1)), BODY, id="fewer than it must be"
        ),
        pytest.param(learnt(), BODY | {"max_tokens": None}, id="no limit"),
        pytest.param(learnt(rendering=((), {})), BODY, id="what cannot be rendered"),
        pytest.param(
            learnt(is_rest=True), BODY | {"messages": HELLO * 30}, id="a prompt that is too long"
        ),
    ],
)
async def test_what_the_server_may_refuse_is_left_to_it(
    chats: KnownChats, found: Learnt, body: dict[str, Any]
) -> None:
    chat = read(chats, body)
    chat.kind.learnt, chat.kind.is_known = found, True
    assert not await chats.respond(chat, cast(Any, None), None)


async def test_a_seed_that_may_end_the_engine_is_left_to_the_server(
    chats: KnownChats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeded_steps, "is_refused", lambda params: True)
    chat = read(chats, BODY)
    chat.kind.learnt, chat.kind.is_known = learnt(), True
    assert not await chats.respond(chat, cast(Any, None), None)


async def test_a_limit_is_the_requests(chats: KnownChats) -> None:
    prompt, params = await chats._prompt(read(chats, BODY), learnt())
    assert (prompt, params.max_tokens) == ({"prompt_token_ids": TOKENS}, 5)
    _, params = await chats._prompt(read(chats, BODY), learnt(is_rest=True))
    assert params.max_tokens == LONGEST - len(TOKENS)


async def test_short_prompts_that_come_out_the_same_need_no_thread(chats: KnownChats) -> None:
    short: Any = SimpleNamespace(prompts=[{"prompt_token_ids": [7]}, None])

    async def prompt(messages: Any, rendering: Any) -> Any:
        assert (messages, rendering) == (HELLO, (("template",), {}))
        return short.prompts.pop(0)

    short.prompt = prompt
    chats._short = short
    found, _ = await chats._prompt(read(chats, BODY), learnt(is_same_when_short=True))
    assert found == {"prompt_token_ids": [7]}
    # None is what has to be rendered otherwise.
    found, _ = await chats._prompt(read(chats, BODY), learnt(is_same_when_short=True))
    assert found == {"prompt_token_ids": TOKENS}
    await chats._prompt(read(chats, BODY), learnt())
    assert not short.prompts


@pytest.mark.parametrize("is_refused", [True, False])
async def test_what_fails_together_and_not_in_the_thread_is_off_by_its_name(
    chats: KnownChats, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})

    async def prompt(messages: Any, rendering: Any) -> Any:
        raise ValueError("another vLLM")

    async def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("refused")

    chats._short = cast(Any, SimpleNamespace(prompt=prompt))
    if is_refused:
        chats._render = refuse
    found, _ = await chats._prompt(read(chats, BODY), learnt(is_same_when_short=True))
    assert found == (None if is_refused else {"prompt_token_ids": TOKENS})
    assert ("another vLLM" in fast_paths.states()["short_chats"]) is not is_refused


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_both_prompts_must_come_out_the_same(first: bool, second: bool) -> None:
    kind = taught(
        lesson(learnt(is_same_when_short=first)), lesson(learnt(is_same_when_short=second))
    )
    assert kind.is_known
    assert kind.learnt is not None
    assert kind.learnt.is_same_when_short == (first and second)


def recalled(chats: KnownChats, body: Any, most: int = 1000) -> Any:
    return chats.recall(HttpRequest(PATH, json.dumps(body).encode(), {}), most)


def test_only_a_known_kind_whose_members_were_looked_at_is_recalled(chats: KnownChats) -> None:
    assert recalled(chats, BODY) is None
    kind = read(chats, BODY).kind
    kind.is_checked = True
    assert recalled(chats, BODY) is None
    kind.is_known, kind.is_checked = True, False
    assert recalled(chats, BODY) is None
    kind.is_checked = True
    found = recalled(chats, BODY | {"messages": [*HELLO, *HELLO]})
    assert (found.kind, found.model, found.messages) == (kind, "m", [*HELLO, *HELLO])


def test_what_may_be_too_long_is_looked_at(chats: KnownChats) -> None:
    kind = read(chats, BODY).kind
    kind.is_known = kind.is_checked = True
    assert recalled(chats, BODY, len(json.dumps(BODY))) is not None
    assert recalled(chats, BODY, len(json.dumps(BODY)) - 1) is None
    assert recalled(chats, BODY | {"messages": HELLO * (MOST_ITEMS + 1)}, LARGE) is None
    assert recalled(chats, BODY | {"max_tokens": 6}) is None
    assert recalled(chats, BODY | {"tools": []}) is None


async def test_a_platform_may_generate_less(
    chats: KnownChats, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = SimpleNamespace(get_max_output_tokens=lambda num_prompt_tokens: num_prompt_tokens)
    monkeypatch.setitem(vars(names), "current_platform", platform)
    assert (await chats._prompt(read(chats, BODY), learnt())) == (None, None)


def test_a_renderer_that_is_another_turns_it_off() -> None:
    def render_chat_async() -> None:
        """Return what nobody awaits."""

    chats = known_chats(SimpleNamespace(render_chat_async=render_chat_async))
    assert "is no coroutine" in fast_paths.states()["known_chats"]
    assert read(chats, BODY) is None


def test_a_server_that_logs_requests_sees_them(chats: KnownChats) -> None:
    chats.attach(SimpleNamespace(request_logger=object(), renderer=Renderer()))
    assert "enable_log_requests" in fast_paths.states()["known_chats"]
    assert read(chats, BODY) is None


@pytest.mark.parametrize(
    ("found", "asked", "known"),
    [
        ("chatcmpl-7", "7", AnswerId("chatcmpl-", 0)),
        ("chatcmpl-0123456789abcdef", "", AnswerId("chatcmpl-", 16)),
        ("chatcmpl-7", "8", None),
        ("chatcmpl-7", "", None),
        ("chatcmpl", "", None),
    ],
)
def test_how_an_id_is_made(found: str, asked: str, known: AnswerId | None) -> None:
    assert AnswerId.of(found, asked) == known
