"""Images of the vLLM backend's clients: base64 that is decoded in pieces."""

import base64
import binascii
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lmi_backend.clients import vllm
from lmi_backend.clients.request import read_request
from lmi_backend.engine_config import Context
from lmi_backend.errors import RequestError

PIECE = 8
_LETTERS = "ABab01+/"
_RIGHT = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_WRONG = "=\n\r\t -_.\0\x80é=="


def image(text: str) -> bytes | None:
    """Return what is read of an image; None if it is refused."""
    try:
        work = read_request([{"text_input": ["a"], "image": [text]}], {}, Context()).work
    except RequestError as error:
        return None if error.field == "image" else b"another field"
    assert isinstance(work, tuple)
    return work[0].images[0]


def at_once(text: str) -> bytes | None:
    """Return what Python makes of it as a whole; its releases differ over too much padding."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def check(text: str) -> None:
    """Show that a text is read as it would be whole, or refused, which what is right is not."""
    read = image(text)
    assert read in (None, at_once(text))
    assert read is not None or _RIGHT.fullmatch(text) is None


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a piece have few characters."""
    monkeypatch.setattr(vllm, "PIECE", PIECE)


@pytest.mark.usefixtures("small")
@given(st.text(st.sampled_from(_LETTERS + _WRONG), max_size=4 * PIECE))
@example("")
@example("A" * PIECE)
@example("A" * (PIECE + 1))
@example("A" * (PIECE - 2) + "==")
@example("A" * (PIECE - 2) + "==" + "AAAA")
@example("A" * (PIECE - 1) + "=" + "A" * PIECE)
@example("A" * PIECE + "====")
@example("A" * PIECE + "AA==")
@example("A" * PIECE + "=AAA")
@example("A" * (PIECE - 1) + "\n" + "A" * PIECE)
@example("A" * PIECE + "\n")
def test_any_text_is_read_or_refused_as_it_would_be_whole(text: str) -> None:
    check(text)


def test_a_piece_has_no_part_of_a_group() -> None:
    assert vllm.PIECE % 4 == 0
    data = bytes(range(256)) * (vllm.PIECE // 256)
    assert image(base64.b64encode(data).decode()) == data
