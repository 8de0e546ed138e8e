"""The chunks of an answer whose events are known."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside.event_layouts import DONE, ChatLayouts
from lmi_backend.engines.vllm.inside.streamed_chat import (
    FailedOutputError,
    StreamedChat,
    UnknownEventError,
)
from lmi_backend.generation import HttpChunk
from lmi_backend.token_ids import pack
from tests.unit.engines.vllm.inside.test_event_layouts import OUTPUTS, STREAMS, whole

PROMPT = [1, 2, 3]
HEADERS = {"content-type": "text/event-stream"}


def layouts(outputs: Any = OUTPUTS[0]) -> ChatLayouts:
    found = ChatLayouts.of(whole(STREAMS[0], outputs, (1, 2)), outputs, STREAMS[0], (1, 2))
    assert found is not None
    return found


def output(text: str, ids: list[int], reason: str | None = None, stop: Any = None) -> Any:
    answer = SimpleNamespace(text=text, token_ids=ids, finish_reason=reason, stop_reason=stop)
    return SimpleNamespace(outputs=[answer], prompt_token_ids=PROMPT)


def writer(made: ChatLayouts, *, sends_ids: bool = True) -> StreamedChat:
    return StreamedChat(made, HEADERS, "chatcmpl-7", sends_ids=sends_ids)


def events(data: bytes) -> list[Any]:
    *found, end = data.split(b"\n\n")
    assert end == b""
    return [
        each if each + b"\n\n" == DONE else json.loads(each.removeprefix(b"data: "))
        for each in found
    ]


def test_the_first_chunk_has_the_role_and_the_last_one_the_end() -> None:
    made = writer(layouts())
    (first,) = made.deltas(output("a", [7]))
    middle = made.of_new_tokens("b", [8, 9], (), None)
    (last,) = made.deltas(output("c", [10], "stop", "x"))
    assert (first.headers, middle.headers) == (HEADERS, {})
    assert [each.is_last for each in (first, middle, last)] == [False, False, True]
    assert [each.ids for each in (first, middle, last)] == [pack([7]), pack([8, 9]), pack([10])]
    assert [each.num_tokens for each in (first, middle, last)] == [1, 2, 1]
    assert {each.num_prompt_tokens for each in (first, middle, last)} == {len(PROMPT)}
    role, text = events(first.data)
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert text["choices"][0]["delta"] == {"content": "a"}
    end, usage, done = events(last.data)
    assert (end["choices"][0]["finish_reason"], end["choices"][0]["stop_reason"]) == ("stop", "x")
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert done + b"\n\n" == DONE
    assert {each["id"] for each in (role, text, end, usage)} == {"chatcmpl-7"}
    assert len({each["created"] for each in (role, text, end, usage)}) == 1


def test_an_answer_of_one_output_is_one_chunk() -> None:
    (only,) = writer(layouts()).deltas(output("", [2], "stop"))
    assert only.is_last
    assert only.headers == HEADERS
    assert len(events(only.data)) == len(("role", "text", "usage", "done"))


def test_an_output_of_nothing_has_no_event() -> None:
    made = writer(layouts(), sends_ids=False)
    assert list(made.deltas(output("", []))) == []
    assert not made.is_begun
    with pytest.raises(UnknownEventError):
        list(made.deltas(output("", [], "abort")))
    # A stop string may begin there: its text is not sent yet.
    (chunk,) = made.deltas(output("", [7]))
    assert (made.is_begun, chunk.ids) == (True, b"")


def test_a_middle_that_was_never_seen_is_not_guessed() -> None:
    only = [OUTPUTS[0][-1]]
    made = writer(layouts(only))
    with pytest.raises(UnknownEventError):
        list(made.deltas(output("a", [7])))
    assert not made.is_begun
    (last,) = made.deltas(output("a", [7], "length"))
    assert isinstance(last, HttpChunk)


def test_a_failed_output_is_told() -> None:
    failed = output("", [], "error")
    with pytest.raises(FailedOutputError) as raised:
        list(writer(layouts()).deltas(failed))
    assert raised.value.output is failed
