"""What is learnt from one answer of vLLM's server, and from which nothing is."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.engines.vllm.inside.body_kind import BodyKind
from lmi_backend.engines.vllm.inside.chat_lessons import NAME, Lesson
from tests.unit.engines.vllm.inside.test_event_layouts import OUTPUTS, STREAMS, whole

MESSAGES = [{"role": "user", "content": "hello"}]
STREAM, ANSWER = STREAMS[0], OUTPUTS[0]
LIMIT = 3


class Params(SimpleNamespace):
    """Has what is read of vLLM's."""


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setitem(vars(names), "RequestOutputKind", SimpleNamespace(DELTA="delta"))
    engine = SimpleNamespace(generate=lambda _, prompt, sampling_params, request_id: None)
    monkeypatch.setitem(vars(names), "AsyncLLM", engine)


def output(values: Any, ids: Any) -> Any:
    return SimpleNamespace(
        prompt_token_ids=[1, 2], outputs=[SimpleNamespace(**vars(values), token_ids=ids)]
    )


def taught(prompt: Any, rendered: Any, ids: Any = (5,)) -> Lesson:
    """Return the lesson of an answer whose engine got a prompt."""
    lesson = Lesson(MESSAGES, STREAM["id"].removeprefix("chatcmpl-"), LIMIT, 64)
    lesson.note_rendering(([MESSAGES], "template"), {})
    lesson.note_prompts(([MESSAGES], [rendered]))
    params = Params(n=1, max_tokens=LIMIT, output_kind="delta")
    lesson.note_call((prompt, params, STREAM["id"]), {}, params)
    for each in ANSWER:
        lesson.note_output(output(each, ids))
    lesson.note_head(200, {})
    for event in whole(STREAM, ANSWER, (2, len(ANSWER))):
        lesson.note_event(event)
    return lesson


def test_an_answer_of_what_was_rendered_teaches() -> None:
    prompt = {"prompt_token_ids": [1, 2], "arrival_time": 7.0}
    assert taught(prompt, prompt).learnt() is not None
    assert fast_paths.is_on(NAME)


@pytest.mark.parametrize(
    "prompt",
    [
        {"prompt_token_ids": [1]},
        {"prompt_token_ids": [1, 2], "cache_salt": "a"},
        "hello",
    ],
)
def test_a_prompt_that_the_server_has_changed_teaches_nothing(prompt: Any) -> None:
    """A third body would get another prompt here than there."""
    assert taught(prompt, {"prompt_token_ids": [1, 2]}).learnt() is None


def test_a_prompt_that_is_changed_in_its_place_teaches_nothing() -> None:
    ids = [1, 2, 3]
    prompt = {"prompt_token_ids": ids}
    lesson = Lesson(MESSAGES, "1", LIMIT, 64)
    lesson.note_prompts(([MESSAGES], [prompt]))
    ids.pop()
    lesson.note_call((prompt, Params(), "1"), {}, Params())
    assert not lesson._is_as_rendered


@pytest.mark.parametrize(
    ("note", "given"),
    [
        ("note_prompts", ("no pair",)),
        ("note_call", ((), {}, None)),
        ("note_output", (SimpleNamespace(),)),
    ],
)
def test_an_answer_that_cannot_be_looked_at_goes_on(note: str, given: tuple[Any, ...]) -> None:
    getattr(Lesson(MESSAGES, "1", LIMIT, 64), note)(*given)
    assert not fast_paths.is_on(NAME)


def test_a_lesson_that_cannot_be_read_is_said_after_its_answer() -> None:
    def learnt() -> None:
        raise AttributeError("max_tokens")

    broken: Any = SimpleNamespace(learnt=learnt)
    BodyKind().learn(broken, needs_content=True)
    assert "max_tokens" in fast_paths.states()[NAME]
