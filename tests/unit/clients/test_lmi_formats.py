"""However tokens fall into chunks, an answer reads the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi_backend.clients.lmi_formats import (
    NAMES,
    RequestedAnswer,
    make_format,
    token_texts,
)
from lmi_backend.errors import EngineError, RequestError
from lmi_backend.generation import Delta, Token

TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4), min_size=1, max_size=8
)


def chunks(texts: list[str], cuts: list[bool]) -> list[Delta]:
    """One delta for each token, but where a cut is false it joins the one before."""
    made: list[Delta] = []
    for place, text in enumerate(texts):
        is_end = place == len(texts) - 1
        delta = Delta(text, 1, "length" if is_end else None, tokens=(Token(place, text, -0.5),))
        if made and not cuts[place]:
            made[-1].merge(delta)
        else:
            made.append(delta)
    return made


def written(name: str, requested: RequestedAnswer, deltas: list[Delta]) -> str:
    form = make_format(name, requested)
    return "".join(form.write([delta]) for delta in deltas)


@given(texts=TEXTS, data=st.data(), dialect=st.sampled_from(["legacy", "async"]))
def test_pieces_change_nothing(texts: list[str], data: st.DataObject, dialect: Any) -> None:
    cuts = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    requested = RequestedAnswer(("p",), stream=True, details=True, dialect=dialect)
    for name in NAMES:
        alone = written(name, requested, chunks(texts, [True] * len(texts)))
        assert written(name, requested, chunks(texts, cuts)) == alone


@given(
    tokens=st.lists(
        st.builds(
            Token,
            st.integers(0),
            st.text(st.characters()),
            st.none() | st.floats(),
            is_special=st.booleans(),
        ),
        max_size=3,
    ),
    requested=st.builds(
        RequestedAnswer,
        st.sampled_from([("p",), ("p", "q")]),
        stream=st.just(True),
        top_n_tokens=st.integers(0, 1),
        tgi_compat=st.booleans(),
        dialect=st.sampled_from(["legacy", "async"]),
    ),
    end=st.sampled_from([None, "stop"]),
    name=st.sampled_from(["jsonlines", "sse"]),
)
def test_a_line_by_itself_is_that_of_any_chunk(
    tokens: list[Token], requested: RequestedAnswer, end: Any, name: str
) -> None:
    """And the end of the answer has what it had."""
    text = "".join(token.text for token in tokens)
    delta, last = Delta(text, len(tokens), end, tokens=tuple(tokens)), Delta(" x", 1, "stop")
    forms = [make_format(name, requested) for _ in range(2)]
    line, expected = forms[0].line(delta), forms[1].write([delta])  # type: ignore[attr-defined]
    if line is None:
        is_plain = tokens and all(not t.is_special and t.logprob is not None for t in tokens)
        assert end or len(requested.prompts) > 1 or not is_plain
        return
    assert line == expected.encode()
    forms[0].note(delta)  # type: ignore[attr-defined]
    assert forms[0].write([last]) == forms[1].write([last])


@given(texts=TEXTS, whole=st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_the_texts_of_a_stream_are_the_text(texts: list[str], whole: str) -> None:
    """Also where the text is not that of the tokens, as when a character takes two."""
    tokens = tuple(Token(place, text) for place, text in enumerate(texts))
    delta = Delta(whole, len(texts), "stop", tokens=tokens)
    lines = written("jsonlines", RequestedAnswer(("p",)), [delta]).split("\n")[:-1]
    events = [json.loads(line) for line in lines]
    assert "".join(line["token"]["text"] for line in events) == whole
    assert events[-1]["generated_text"] == whole
    assert len(lines) == len(texts)


def test_an_end_without_a_token_has_a_line() -> None:
    line = written("jsonlines", RequestedAnswer(("p",)), [Delta("held", 0, "stop")])
    token = {"id": -1, "text": "held", "log_prob": None}
    assert json.loads(line) == {"token": token, "generated_text": "held"}


def test_half_a_character_and_infinity_are_json_all_the_same() -> None:
    deltas = [Delta("\ud800", 1, "stop", tokens=(Token(1, "\ud800", float("-inf")),))]
    for name in NAMES:
        written(name, RequestedAnswer(("p",), details=True), deltas).encode("utf-8")
    body = json.loads(written("json", RequestedAnswer(("p",), details=True), deltas))
    assert body["details"]["tokens"][0]["log_prob"] == -9999.0


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_after_the_begin_is_said_in_the_form(name: str) -> None:
    text = make_format(name, RequestedAnswer(("p",))).fail(EngineError("lost"))
    assert text == "" if name == "none" else '"error": "lost", "code": 424' in text


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(RequestError, match="accepted: json, jsonlines, sse, none"):
        make_format("yaml", RequestedAnswer(("p",)))


def test_the_form_follows_the_request_unless_it_is_named() -> None:
    types = {
        RequestedAnswer(("p",)): "application/json",
        RequestedAnswer(("p",), stream=True): "application/jsonlines",
        RequestedAnswer(("p",), stream=True, tgi_compat=True): "text/event-stream",
    }
    for requested, content_type in types.items():
        assert make_format("", requested).content_type == content_type
        assert make_format("none", requested).content_type == "text/plain"


@pytest.mark.parametrize(
    ("text", "tokens", "texts"),
    [
        (" Rome.", [" R", "ome", ".", "</s>"], [" R", "ome", ".", ""]),
        (" Rome.</s>", [" R", "ome", ".", "</s>"], [" R", "ome", ".", "</s>"]),
        ("aéb", ["a", "\ufffd", "\ufffd", "b", "</s>"], ["a", "", "é", "b", ""]),
        ("aé", ["a", "\ufffd", "\ufffd", "</s>"], ["a", "", "é", ""]),
        ("hel", ["he", "llo", " you"], ["he", "", "l"]),
        ("held", ["x"], ["held"]),
        ("held", ["x", "y"], ["", "held"]),
        ("held", [], ["held"]),
    ],
)
def test_the_texts_of_tokens_are_together_what_was_said(
    text: str, tokens: list[str], texts: list[str]
) -> None:
    delta = Delta(text, tokens=tuple(Token(1, each, is_special=each == "</s>") for each in tokens))
    assert token_texts(delta) == texts
