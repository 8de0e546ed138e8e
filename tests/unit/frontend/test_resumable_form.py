"""The events of a stream, with their ids, and where others have made the first of them."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lmi_backend.clients.lmi import LegacyChatForm, form_of, read_lmi
from lmi_backend.clients.openai import HttpForm
from lmi_backend.clients.responses import BackgroundForm
from lmi_backend.clients.spec import EVENTS, Form
from lmi_backend.clients.tgi import read_stream
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import HttpError
from lmi_backend.frontend.resumable import ResumableForm
from lmi_backend.generation import Chunk, Delta, HttpChunk, Token
from lmi_backend.ipc.chunk_log import parts_in
from lmi_backend.tokenization import pack

PARAMETERS: dict[str, Any] = {"details": True, "seed": 5, "return_full_text": True}
TOP = PARAMETERS | {"top_n_tokens": 2, "decoder_input_details": True}
HEADERS = {"content-type": EVENTS}
NAME = "name"


def _written(
    data: bytes, size: int, skipped: int = 0, form: Form | None = None
) -> tuple[bytes, ResumableForm]:
    """Return what becomes of data that come in parts of a size, and what made it."""
    writer = ResumableForm(form or HttpForm(), NAME, skipped)
    places = range(0, len(data), size)
    parts = [HttpChunk(data[start : start + size], headers=HEADERS) for start in places]
    parts[-1].is_last = True
    return b"".join(writer.write([part]) for part in parts), writer


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_what_follows_each_event_is_what_came_whatever_the_parts_it_came_in(size: int) -> None:
    draw = random.Random(size)
    events = [b'data: {"text":"%d"}\n\n' % draw.randrange(10 ** draw.randint(1, 9))] * 50
    expected = [b"id: name.%d\n%b" % each for each in enumerate(events, start=1)]
    for skipped in range(len(events)):
        data, _ = _written(b"".join(events), size, skipped)
        assert data.removeprefix(b": ping\n") == b"".join(expected[skipped:])
    with pytest.raises(HttpError):
        _written(b"".join(events), size, len(events) + 1)


def test_a_comment_has_no_id_and_a_last_event_needs_no_empty_line() -> None:
    data, _ = _written(
        b": ping\n\n\n\ndata: a\n\n: still here\n: yes\n\n: why\ndata: b\n\ndata: c", 100
    )
    assert data == b"id: name.1\ndata: a\n\nid: name.2\n: why\ndata: b\n\nid: name.3\ndata: c\n\n"


def forms() -> dict[str, Callable[[], Form]]:
    """Return what makes forms of streams that the front end writes itself."""

    def tgi(parameters: dict[str, Any]) -> Form:
        body = {"inputs": "a", "parameters": parameters}
        return read_stream(body, Context()).form

    def lmi(parameters: dict[str, Any], **settings: Any) -> Form:
        named = parameters | {"stream": True, "output_formatter": "sse"}
        context = Context(clients=ClientSettings(**settings))
        parsed = read_lmi("a", named, context, is_body=True)
        assert isinstance(parsed.work, tuple)
        return form_of(parsed.work, parsed.reply)

    return {
        "tgi": lambda: tgi({}),
        "tgi with details": lambda: tgi({"details": True, "top_n_tokens": 2}),
        "lmi": lambda: lmi({}),
        "lmi with details": lambda: lmi(PARAMETERS),
        "lmi with top tokens": lambda: lmi(TOP),
        "lmi async": lambda: lmi(TOP, dialect="async"),
        "lmi as tgi": lambda: lmi(PARAMETERS, tgi_compat=True),
    }


def _deltas() -> Iterator[Delta]:
    for number in range(8):
        tokens = [Token(number, f" w{number}", -0.5, 1, top=(Token(9, "x", -1.0, 2),))]
        if number == 3:
            # Two at once, and then a text without any.
            tokens.append(Token(77, "", -0.25, 1, is_special=True))
        first = (Token(1, "a", None), Token(2, "b", -2.0)) if not number else ()
        yield Delta(
            f" w{number}",
            len(tokens),
            "length" if number == 7 else None,
            num_prompt_tokens=2,
            tokens=() if number == 4 else tuple(tokens),
            prompt_tokens=first,
            cumulative_logprob=-0.5 * number,
            ids=pack([token.id for token in tokens]),
        )


def _bytes() -> Iterator[HttpChunk]:
    for number in range(8):
        data = b'data: {"choices":[{"delta":{"content":"w%d"}}]}\n\n' % number
        yield HttpChunk(data, number == 7, headers={} if number else HEADERS)


STREAMS: dict[str, tuple[Callable[[], Form], Callable[[], Iterator[Chunk]]]] = {
    **{name: (make, _deltas) for name, make in forms().items()},
    "openai": (HttpForm, _bytes),
    "lmi's older chats": (LegacyChatForm, _bytes),
}


@pytest.mark.parametrize("name", STREAMS)
def test_what_another_process_has_made_is_continued(name: str) -> None:
    make, chunks = STREAMS[name]
    plain = ResumableForm(make(), NAME)
    whole = b"".join(plain.write([each]) for each in chunks())
    for count in range(1, 8):
        first = ResumableForm(make(), NAME)
        events = b"".join(first.write([each]) for each in [*chunks()][:count])
        so_far = first.so_far()
        assert so_far is not None
        num_events, block = so_far
        assert num_events == events.count(b"id: ")
        second = ResumableForm(make(), NAME, num_events)
        second.begin_after(num_events)
        (part,) = parts_in(block)
        rest = [part.chunk, *[*chunks()][count:]]  # type: ignore[union-attr]
        data = b"".join(second.write([each]) for each in rest)
        assert events + data.removeprefix(b": ping\n") == whole
        assert (second.is_over, second.status) == (True, 200)
        assert second.headers == first.headers
        # Who was away meanwhile, and lacks some of them, is sent nothing.
        late = ResumableForm(make(), NAME, num_events - 1)
        late.begin_after(num_events)
        with pytest.raises(HttpError, match="the process of the model died"):
            late.write([part.chunk])  # type: ignore[union-attr]


def test_of_several_answers_nothing_is_known() -> None:
    named = {"stream": True, "output_formatter": "sse", "n": 2}
    parsed = read_lmi("a", named, Context(), is_body=True)
    assert isinstance(parsed.work, tuple)
    assert ResumableForm(form_of(parsed.work, parsed.reply), NAME).so_far() is None


@pytest.mark.parametrize("form", [HttpForm, LegacyChatForm])
def test_a_stream_is_continued_between_two_events_only(form: Callable[[], Form]) -> None:
    writer = ResumableForm(form(), NAME)
    assert writer.write([HttpChunk(b"data: {}\n\n", headers=HEADERS)])
    assert writer.so_far() is not None
    assert not writer.write([HttpChunk(b"data: {")])
    assert writer.so_far() is None
    assert writer.write([HttpChunk(b"}\n\n")])
    assert writer.so_far() is not None


def test_a_response_in_the_background_is_not_continued() -> None:
    """Its first event would lack, which has all that its client is shown."""
    writer = ResumableForm(BackgroundForm(is_stream=True), NAME)
    writer.write([HttpChunk(b"data: {}\n\n", headers=HEADERS)])
    assert writer.so_far() is None
