"""Large JSON in turns, and what a client is told of JSON that cannot be read."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi_backend import outline as module
from lmi_backend.clients.request import wanted
from lmi_backend.engines.bodies import BodyBounds, check_body, head_of
from lmi_backend.errors import HttpError, WorkerError
from lmi_backend.frontend.http.bodies import read_object
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc.frames import FrameDecoder
from lmi_backend.outline import (
    LARGE,
    LONG,
    UNREADABLE,
    Outline,
    TooMuchError,
    at_once,
    fill,
    in_turns,
    outline,
)

PROBLEMS = {
    b"[1]": "is not an object: Expected `object`, got `array`",
    b"3": "is not an object: Expected `object`, got `int`",
    b'{"seed": 1e400}': "has a value that cannot be read: seed: Number out of range",
    b'{"n": 1, "a": [1, {"b": -1e400}]}': "has a value that cannot be read: a: Number out of range",
    b'{"k": %s}' % (b"9" * 5000): "has a value that cannot be read: k: Integer value out of range",
    b"1e400": "has a value that cannot be read: Number out of range",
    b'{"a": NaN}': "is not JSON: ",
    b"": "is not JSON: ",
    b'{"a": "\xe9"}': "is not UTF-8: ",
    b'{"\xe9": 1}': "is not UTF-8: ",
    b'{"a":' + b"[" * 3000: "is nested too deeply",
}
NAMED = [each[:40].decode("latin-1") for each in PROBLEMS]


@pytest.mark.parametrize(("data", "problem"), PROBLEMS.items(), ids=NAMED)
async def test_a_client_is_told_what_is_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(HttpError) as caught:
        await read_object(data)
    assert caught.value.status == 400
    assert str(caught.value).startswith(f"the body {problem}")


@pytest.mark.parametrize("data", PROBLEMS, ids=NAMED)
def test_a_decoder_raises_nothing_else(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(data, type=dict[str, Any])


CHATS = "/v1/chat/completions"
BROKEN = b'{"prompt": ["\xe9"], "model": "\xe9", "messages": "\xe9"}'


@pytest.mark.parametrize("body", [BROKEN, BROKEN + b" " * (1 << 18)], ids=["small", "large"])
async def test_what_is_no_text_is_left_to_the_server_that_refuses_it(body: bytes) -> None:
    read: list[Callable[[], object]] = [
        lambda: head_of(Outline(body, "", [])),
        lambda: wanted(HttpRequest(CHATS, body)),
    ]
    for each in read:
        each()
    assert (await check_body(body, BodyBounds(), CHATS))[0] == body


def test_a_frame_that_is_no_text_ends_its_connection_with_a_reason() -> None:
    decoder: FrameDecoder[str] = FrameDecoder(str, limit=100)
    with pytest.raises(WorkerError, match="a frame that cannot be read"):
        decoder.feed(b"\x06\x00\x00\x00\x91\xa3\xe9\xe9\xe9\x00")


_TEXTS = st.text(
    st.one_of(st.sampled_from('"\\/\b\n\té漢\U0001f600\ud83d\ude00u'), st.characters()), max_size=60
)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_TEXTS, inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slices and pieces be so small that each text has many."""
    for name, size in (("_SLICE", 7), ("_PIECE", 32), ("LONG", 9), ("_NODES", 2)):
        monkeypatch.setattr(module, name, size)


def _whole(data: bytes) -> Any:
    outlined = at_once(outline(data))
    return at_once(fill(json.loads(outlined.text), outlined, data))


@settings(max_examples=300)
@pytest.mark.usefixtures("small")
@given(_VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_what_is_read_in_turns_is_what_was_written(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    data = text.encode("utf-8", "surrogatepass")
    assert _whole(data) == json.loads(data)


@pytest.mark.usefixtures("small")
@given(_VALUES, st.data())
def test_what_is_cut_or_changed_is_read_alike_or_not_at_all(
    value: Any, draw: st.DataObject
) -> None:
    data = bytearray(json.dumps({"a": value}).encode())
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.sampled_from(b'"\\{}[],: x\n\0'))
    del data[draw.draw(st.integers(1, len(data))) :]
    try:
        expected = json.loads(bytes(data))
    except ValueError:
        return
    assert _whole(bytes(data)) == expected


def test_the_outline_is_small_and_names_what_it_leaves_out() -> None:
    data = json.dumps({"model": "m", "x": ["é" * 1000, " " * 10]}).encode() + b" " * LARGE
    outlined = at_once(outline(data))
    assert len(outlined.text) < 2 * LONG
    read = json.loads(outlined.text)
    assert read["model"] == "m"
    long = outlined.find(read["x"][0])
    assert long is not None
    assert json.loads(data[long.start - 1 : long.end + 1]) == "é" * 1000
    assert 1000 <= long.characters < 1010
    assert outlined.find("m") is outlined.find(1) is None


def test_no_client_knows_the_marks() -> None:
    data = json.dumps(["a" * 300, "b"]).encode()
    first, second = (at_once(outline(data)).mark for _ in range(2))
    assert first != second


@pytest.mark.parametrize("letter", ["a", "é", "漢", "\n", '"', "\\", "\U0001f600"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_characters_are_counted_without_reading_them(letter: str, *, ascii_only: bool) -> None:
    data = json.dumps([letter * 100_000], ensure_ascii=ascii_only).encode()
    (long,) = at_once(outline(data)).long
    as_pair = 2 if ascii_only and letter == "\U0001f600" else 1
    # An escape that a slice cuts may count as more.
    assert 100_000 <= long.characters / as_pair <= 101_000


@pytest.mark.parametrize(("text", "end"), [("a", "漢"), ("\\u6f22", "")])
def test_a_text_that_python_would_write_twice_is_refused(text: str, end: str) -> None:
    with pytest.raises(TooMuchError, match="more than 8000000 characters"):
        at_once(outline(f'["{text * 8_000_001}{end}"]'.encode()))
    # As .NET escapes base64.
    at_once(outline(f'["{"a" * 8_000_001}\\u002b"]'.encode()))


@pytest.mark.parametrize(
    ("part", "times", "most", "words"),
    [
        (b"[1,", 300_000, 500_000, "more than 500000 values"),
        (b'"",', 6_000_000, 10**9, "more than 16777216 bytes"),
        (b'a","', 6_000_000, 10**9, "more than 16777216 bytes"),
    ],
)
def test_too_much_is_refused_on_the_way(part: bytes, times: int, most: int, words: str) -> None:
    start = b'"' * part.startswith(b"a")
    with pytest.raises(TooMuchError, match=words):
        at_once(outline(start + part * times, most))


BODIES = {
    "a long text": (b'"', b"word ", 6_000_000, b'"'),
    "escapes": (b'"', b"\\u0041", 3_000_000, b'"'),
    "line ends": (b'"', b"a\\n", 4_000_000, b'"'),
    "quotes": (b'"', b'\\"', 6_000_000, b'"'),
    "many texts": (b"[", b'"%s",' % (b"a" * 1000), 15_000, b"1]"),
}


class _Watched(bytes):
    """Bytes that count what is taken of them."""

    taken = 0

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        self.taken += len(part) if isinstance(part, bytes) else 1
        return part


@pytest.mark.parametrize("name", BODIES)
async def test_a_turn_takes_little_however_large_the_body_is(name: str) -> None:
    start, part, times, end = BODIES[name]
    data = _Watched(b'{"a":' + start + part * times + end + b"}")
    turns: list[int] = []

    async def count() -> None:
        while True:
            turns.append(data.taken)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    outlined = await in_turns(outline(data))
    value = await in_turns(fill(json.loads(outlined.text), outlined, data))
    counting.cancel()
    assert value == json.loads(bytes(data))
    assert data.taken > len(data)
    assert max(after - before for before, after in itertools.pairwise(turns)) < 4 << 20
