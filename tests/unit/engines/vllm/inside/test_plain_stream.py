"""Events that differ in their text only are written from the first of them."""

import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.plain_stream import (
    Template,
    TemplatedEvents,
    common_and_changing,
    is_same_in_all,
)
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import pack

CHAT = {
    "id": 'chatcmpl-"content":"x"',
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "lmi",
    "choices": [{"index": 0, "delta": {"content": "née"}, "logprobs": None, "finish_reason": None}],
}
COMPLETION = CHAT | {
    "object": "text_completion",
    "choices": [{"index": 0, "text": "née", "logprobs": None, "finish_reason": None}],
}
PROMPT_TOKENS = 5
PLAIN = [CHAT, COMPLETION]
TEXTS = ["", "a", '"', "\\", "\n\t\r\b\f", "\x00\x1f\x7f", "東京 🗼", "\u2028", "</b>", "\ufffd"]


def event(value: Any) -> bytes:
    """Return an event as vLLM's server writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def telling(value: dict[str, Any], text: str) -> dict[str, Any]:
    (choice,) = value["choices"]
    part = {"delta": {"content": text}} if "delta" in choice else {"text": text}
    return value | {"choices": [choice | part]}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("value", PLAIN)
def test_another_text_is_told_in_the_same_way(value: dict[str, Any], text: str) -> None:
    template = Template.of(event(value), "née")
    assert template is not None
    assert template.event(text) == event(telling(value, text))


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_may_be_the_first(text: str) -> None:
    template = Template.of(event(telling(CHAT, text)), text)
    assert template is not None
    assert template.event("née") == event(CHAT)


@pytest.mark.parametrize("value", PLAIN)
def test_members_that_change_with_each_event_are_told_from_those_in_all(value: Any) -> None:
    stamped = value | {"system_fingerprint": "x", "nothing": None}
    events = [event(stamped | {"usage": {"total_tokens": number}}) for number in (1, 2)]
    last = event(value | {"choices": [value["choices"][0] | {"finish_reason": "stop"}]})
    common = {("system_fingerprint", '"x"'), ("nothing", "null")}
    assert common_and_changing([*events, last, b"", b"data: [DONE]"]) == (common, {"usage"})
    # A member of some events alone is in no template.
    assert common_and_changing([event(stamped), event(value)]) == (
        set(),
        {"system_fingerprint", "nothing"},
    )
    assert common_and_changing([last]) == (set(), set())


@pytest.mark.parametrize(
    ("name", "value", "is_same"),
    [
        ("kv_transfer_params", "null", True),
        ("tool_calls", "[]", True),  # 0.21
        ("system_fingerprint", '"vllm"', True),
        ("steps", "0", False),
        ("phase", '"first"', False),
        ("is_cached", "false", False),
    ],
)
def test_what_an_unknown_member_tells_may_change(name: str, value: str, is_same: bool) -> None:
    assert is_same_in_all(name, value) is is_same


CHOICE = CHAT["choices"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    "members",
    [
        CHAT | {"usage": {"prompt_tokens": 1}},
        CHAT | {"system_fingerprint": "x"},
        CHAT | {"choices": []},
        CHAT | {"choices": [CHOICE, CHOICE]},
        CHAT | {"choices": [CHOICE | {"finish_reason": "stop"}]},
        CHAT | {"choices": [CHOICE | {"logprobs": {"content": []}}]},
        CHAT | {"choices": [CHOICE | {"token_ids": [1]}]},
        CHAT | {"choices": [CHOICE | {"delta": {"role": "assistant", "content": "née"}}]},
        CHAT | {"choices": [CHOICE | {"delta": {"reasoning": "née"}}]},
        CHAT | {"choices": [CHOICE | {"delta": {"content": "née", "tool_calls": []}}]},
        CHAT | {"choices": [CHOICE | {"some day": None}]},
        telling(CHAT, "other"),
        telling(CHAT, "née, and the prompt"),
        {"error": {"message": "née"}},
    ],
)
def test_an_event_that_tells_more_is_no_template(members: dict[str, Any]) -> None:
    assert Template.of(event(members), "née") is None


@pytest.mark.parametrize("data", [b"", b"data: [DONE]\n\n", event(CHAT) * 2, b"data: {"])
def test_what_is_no_event_is_no_template(data: bytes) -> None:
    assert Template.of(data, "née") is None


def test_escapes_that_are_not_ours_are_no_pattern() -> None:
    escaped = b"data: " + json.dumps(CHAT, separators=(",", ":")).encode() + b"\n\n"
    assert b"\\u00e9" in escaped
    assert Template.of(escaped, "née") is None


class State:
    """A RequestState of vLLM, as far as a stream needs it, with vLLM's signatures."""

    def __init__(self, *waiting: Any) -> None:
        self.detokenizer = self.queue = self
        self._waiting = list(waiting)
        self.text = ""
        self.made: list[Any] = []
        self.errors: list[Exception] = []
        self.put = self.errors.append

    def get_nowait(self) -> Any:
        return self._waiting.pop(0) if self._waiting else None

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> None:
        raise AssertionError("vLLM's output processor has decoded them")

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        assert (finished, delta) == (False, True)
        text, self.text = self.text, ""
        return text

    def make_request_output(
        self,
        new_token_ids: list[int],
        pooling_output: Any,
        finish_reason: Any,
        stop_reason: Any,
        kv_transfer_params: Any = None,
    ) -> Any:
        self.made.append((list(new_token_ids), finish_reason, stop_reason, kv_transfer_params))
        return "output"


class Events:
    """Takes events; while `defers`, tokens stay."""

    def __init__(self) -> None:
        self.defers = False
        self.flushes: list[Any] = []
        self.taken: list[tuple[bytes, int]] = []
        self.asked: list[int] = []
        self.ids = b""

    def take(self, chunk: HttpChunk) -> None:
        assert chunk.num_prompt_tokens == PROMPT_TOKENS
        self.ids += chunk.ids
        self.taken.append((chunk.data, chunk.num_tokens))

    async def drain(self) -> None:
        pass

    def defer(self, flush: Any, num_tokens: int) -> bool:
        self.flushes.append(flush)
        self.asked.append(num_tokens)
        return self.defers


def templated(
    state: State, events: Events, *interval: Any, sends_ids: bool = False
) -> TemplatedEvents:
    template = Template.of(event(CHAT), "née")
    assert template is not None
    return TemplatedEvents(
        state,
        template,
        events,
        *interval,
        num_prompt_tokens=PROMPT_TOKENS,
        sends_ids=sends_ids,
    )


def test_each_output_in_the_middle_is_an_event_and_the_last_is_vllms() -> None:
    state, events = State(), Events()
    written = templated(state, events)
    for number, text in enumerate(("a", "", "b"), 1):
        state.text = text
        assert state.make_request_output([number], None, None, None) is None
    assert events.taken == [(event(telling(CHAT, text)), 1) for text in ("a", "", "b")]
    assert written.num_sent == 3
    # An abort gives its arguments by name.
    last = state.make_request_output(
        new_token_ids=[4, 5], pooling_output=None, finish_reason="stop", stop_reason="x"
    )
    assert last == "output"
    assert state.made == [([1, 2, 3, 4, 5], "stop", "x", None)]


def test_deferred_tokens_share_an_event() -> None:
    state, events = State(), Events()
    templated(state, events)
    events.defers = True
    for number in (1, 2):
        state.text += "ab"[number - 1]
        state.make_request_output([number], None, None, None)
    assert events.asked == [1, 2]
    assert events.ids == b""
    events.flushes[-1]()
    events.flushes[-1]()
    assert events.taken == [(event(telling(CHAT, "ab")), 2)]


def test_events_have_as_many_tokens_as_are_asked_for() -> None:
    waiting = SimpleNamespace(outputs=[SimpleNamespace(text="waits", token_ids=[2, 3, 4])])
    state, events = State(waiting), Events()
    # Of the fifth token vLLM has made no output yet.
    state.text = "e"
    written = templated(state, events, (3, [5]), sends_ids=True)
    for number in range(6, 10):
        state.text += chr(ord("a") + number - 1)
        assert state.make_request_output([number], None, None, None) is None
    expected = [("waits", 3), ("efg", 3)]
    assert events.taken == [(event(telling(CHAT, text)), number) for text, number in expected]
    assert (written.num_sent, events.asked) == (6, [3])
    assert events.ids == pack([2, 3, 4]) + pack([5, 6, 7])
    state.make_request_output([10], None, "stop", None)
    assert state.made == [([*range(2, 11)], "stop", None, None)]


def test_a_flush_after_the_last_output_has_nothing_to_say() -> None:
    state, events = State(), Events()
    written = templated(state, events)
    events.defers = True
    state.make_request_output([1], None, None, None)
    state.make_request_output([2], None, "length", None)
    events.flushes[0]()
    assert events.taken == []
    assert written.num_sent == 0
    assert state.made == [([1, 2], "length", None, None)]


def test_outputs_that_wait_are_written_first() -> None:
    """One that were left would be written by vLLM's server later, after what came after it."""
    waiting = [
        SimpleNamespace(outputs=[SimpleNamespace(text=text, token_ids=ids)])
        for text, ids in (("w", (7, 8)), ("x", (9,)))
    ]
    state, events = State(*waiting), Events()
    written = templated(state, events)
    assert events.taken == [(event(telling(CHAT, "w")), 2), (event(telling(CHAT, "x")), 1)]
    state.make_request_output([10], None, "stop", None)
    assert state.made == [([7, 8, 9, 10], "stop", None, None)]
    assert written.num_sent == 3


def test_an_event_that_cannot_be_written_ends_its_request_alone() -> None:
    """vLLM makes the outputs of all requests in one loop, which an exception would end."""
    state, events = State(), Events()
    templated(state, events)
    state.text = "\ud800"
    assert state.make_request_output([1], None, None, None) is None
    assert [type(error) for error in state.errors] == [UnicodeEncodeError]


def in_a_thread(does: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(does).result()


def test_outputs_of_another_thread_are_vllms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    waiting = SimpleNamespace(outputs=[SimpleNamespace(text="w", token_ids=[7])])
    state, events = State(waiting), Events()
    written = templated(state, events)
    made = in_a_thread(lambda: state.make_request_output([8], None, None, None))
    assert (made, written.is_over) == ("output", True)
    # The server counts the tokens, so it gets all.
    assert state.made == [([7, 8], None, None, None)]
    assert in_a_thread(lambda: state.make_request_output([9], None, "stop", None)) == "output"
    assert state.made[1:] == [([9], "stop", None, None)]
    assert events.taken == [(event(telling(CHAT, "w")), 1)]
    assert "another thread" in fast_paths.states()["plain_stream"]
