"""Text, stop strings and finish reasons, made from token ids."""

from typing import Any

import pytest

from lmi_backend.engines.steps import AnswerDeltas, StepOutput, StopStrings
from lmi_backend.errors import EngineError
from lmi_backend.generation import Continuation, GenerateRequest, Sampling
from lmi_backend.tokenization import pack


class Bytes:
    """A tokenizer whose tokens are bytes; 0 ends the text."""

    def decode(self, ids: Any, **_: Any) -> str:
        return bytes(number for number in ids if number).decode("utf-8", "replace")


def _answer(text: str, ids: Any = None, **sampling: Any) -> tuple[str, list[Any]]:
    request = GenerateRequest("p", Sampling(**{"max_tokens": 100} | sampling))
    answer = AnswerDeltas(Bytes(), request, 3, frozenset({0}))
    deltas = []
    for number in ids or [*text.encode(), 0]:
        deltas.append(answer.add(StepOutput((number,))))
        if answer.is_over:
            break
    return "".join(delta.text for delta in deltas), deltas


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語 🙂 text", "a\nb\t"])
def test_text_comes_out_whole_whatever_its_characters(text: str) -> None:
    answer, deltas = _answer(text)
    assert answer == text
    assert deltas[-1].finish_reason == "stop"
    assert not any("\N{REPLACEMENT CHARACTER}" in delta.text for delta in deltas)
    assert sum(delta.num_tokens for delta in deltas) == len(text.encode()) + 1


def test_text_that_may_become_a_stop_string_waits() -> None:
    stops = StopStrings(["END"])
    assert stops.feed("the E") == ("the ", "")
    assert stops.feed("N") == ("", "")
    assert stops.feed("d") == ("ENd", "")
    assert stops.feed("EN") == ("", "")
    assert stops.rest() == "EN"


@pytest.mark.parametrize(
    ("text", "sampling", "expected", "why"),
    [
        ("go on stop it", {"stop": ("stop",)}, "go on ", "stop"),
        ("go on stop it", {"stop": ("stop",), "include_stop": True}, "go on stop", "stop"),
        ("go on stop it", {"stop": ("on", "o")}, "g", "o"),
        ("go on stop it", {"stop": ("xyz",)}, "go on stop it", None),
        ("go on stop it", {"stop": ("its",)}, "go on stop it", None),
        ("a stop, a stop", {"stop": ("stop",), "min_tokens": 6}, "a stop, a ", "stop"),
        ("a stop", {"stop": ("stop",), "min_tokens": 5}, "a ", "stop"),
        ("a stop", {"stop": ("stop",), "min_tokens": 6, "max_tokens": 6}, "a stop", None),
        ("a stop", {"stop": ("stop",), "min_tokens": 5, "include_stop": True}, "a stop", "stop"),
        ("abc", {"stop": ("ab", "abc"), "min_tokens": 2}, "", "abc"),
        ("abx", {"stop": ("ab", "abc"), "min_tokens": 2, "max_tokens": 3}, "abx", None),
        ("aaa", {"stop": ("aa",), "min_tokens": 2}, "a", "aa"),
        ("xaby", {"stop": ("aby", "b")}, "xa", "b"),
        ("né", {"stop": ("é",), "min_tokens": 2}, "n", "é"),
        ("né", {"stop": ("é",), "min_tokens": 3, "max_tokens": 3}, "né", None),
        ("né", {"max_tokens": 2}, "n", None),
        ("abc", {"stop_token_ids": (ord("b"),)}, "a", ord("b")),
        ("abc", {"stop_token_ids": (ord("b"),), "include_stop": True}, "ab", ord("b")),
        # A stop token that is shown ends no text before it.
        (
            "ab",
            {"stop": ("bc",), "stop_token_ids": (ord("b"),), "include_stop": True},
            "ab",
            ord("b"),
        ),
    ],
)
def test_where_an_answer_stops_and_why(
    text: str, sampling: dict[str, Any], expected: str, why: str | int | None
) -> None:
    shown, deltas = _answer(text, **sampling)
    assert (shown, deltas[-1].stop_reason) == (expected, why)
    is_cut = "max_tokens" in sampling and why is None
    assert deltas[-1].finish_reason == ("length" if is_cut else "stop")


def test_an_engine_that_stops_by_itself_ends_the_answer() -> None:
    answer = AnswerDeltas(Bytes(), GenerateRequest("p", Sampling(9)), 3, frozenset())
    delta = answer.add(StepOutput((65,), is_over=True))
    assert (delta.text, delta.finish_reason, delta.num_prompt_tokens) == ("A", "length", 3)


def _continued(known: list[list[int]]) -> AnswerDeltas:
    where = Continuation(b"".join(pack(group) for group in known))
    request = GenerateRequest("p", Sampling(100), continuation=where)
    return AnswerDeltas(Bytes(), request, 3, frozenset({0}), sends_ids=True)


def test_an_answer_that_goes_on_has_ids_where_its_client_has_none() -> None:
    first, second = "é".encode()
    answer = _continued([[ord("a")], [ord("b"), first]])
    steps = [StepOutput((ord("a"),)), StepOutput((ord("b"), first)), StepOutput((second, ord("c")))]
    deltas = [answer.add(step) for step in steps]
    assert [(delta.text, delta.ids) for delta in deltas] == [
        ("a", b""),
        ("b", b""),
        ("éc", pack([second, ord("c")])),
    ]


@pytest.mark.parametrize(
    ("ids", "message"), [((5,), "generated other tokens"), ((7, 0), "has finished")]
)
def test_an_answer_that_is_another_now_ends_with_an_error(ids: Any, message: str) -> None:
    answer = _continued([[7], [0], [7]])
    with pytest.raises(EngineError, match=message):
        answer.add(StepOutput(ids))
