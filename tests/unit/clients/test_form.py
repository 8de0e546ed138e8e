"""What a form adds to the reply that it writes."""

from typing import Any

import pytest

from lmi_backend.clients.form import answers_of, named_event
from lmi_backend.clients.lmi.handler_form import LmiForm
from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import Delta, GenerateRequest, Sampling


class Reply:
    """Notes what it is given."""

    content_type, inner = "text/plain", None

    def __init__(self, failure: str = "") -> None:
        self.in_the_middle = lambda _: failure
        self.calls: list[tuple[list[Any], bool]] = []

    def responses(self, chunks: list[Any], *, is_last: bool) -> list[dict[str, Any]]:
        self.calls.append((chunks, is_last))
        return [{"response": chunk.text} for chunk in chunks]


def test_an_event_has_its_name_and_its_data_on_lines_of_their_own() -> None:
    assert named_event("error", b"{}") == b"event: error\ndata: {}\n\n"


def test_a_reply_is_over_with_its_last_answer() -> None:
    reply: Any = Reply()
    form = LmiForm(reply, 2)
    assert form.write([Delta(index=0, text="a"), Delta(index=1, text="b", finish_reason="stop")])
    assert not form.is_over
    assert form.write([Delta(index=0, text="c"), Delta(index=0, text="d", finish_reason="stop")])
    assert form.is_over
    # The pieces of an answer come as one.
    assert [([each.text for each in chunks], last) for chunks, last in reply.calls] == [
        (["a", "b"], False),
        (["cd"], True),
    ]


@pytest.mark.parametrize("text", ["", "failed"])
def test_a_reply_that_cannot_say_how_it_failed_has_no_end(text: str) -> None:
    reply: Any = Reply(text)
    ending = LmiForm(reply, 1).failure(EngineDeadError("x"))
    assert (ending.data, ending.is_end) == (text.encode(), text != "")


def test_answers_are_those_of_all_prompts() -> None:
    request = GenerateRequest(prompt="a", sampling=Sampling(), n=3)
    assert (answers_of((request, request)), answers_of((request,)), answers_of(b"{}")) == (6, 3, 1)
