"""What a client is told of JSON that cannot be read."""

from typing import Any

import msgspec
import pytest

from lmi_backend.clients.request import wanted
from lmi_backend.engines.bodies import BodyBounds, check_body, members_of
from lmi_backend.errors import HttpError, WorkerError
from lmi_backend.frontend.http.bodies import read_object
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc.frames import FrameDecoder
from lmi_backend.json_text import UNREADABLE

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
def test_a_client_is_told_what_is_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(HttpError) as caught:
        read_object(data)
    assert caught.value.status == 400
    assert str(caught.value).startswith(f"the body {problem}")


@pytest.mark.parametrize("data", PROBLEMS, ids=NAMED)
def test_a_decoder_raises_nothing_else(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(data, type=dict[str, Any])


CHATS = "/v1/chat/completions"
BROKEN = b'{"prompt": ["\xe9"], "model": "\xe9", "messages": "\xe9"}'


@pytest.mark.parametrize("body", [BROKEN, BROKEN + b" " * (1 << 18)], ids=["small", "large"])
def test_what_is_no_text_is_left_to_the_server_that_refuses_it(body: bytes) -> None:
    wanted(HttpRequest(CHATS, body))
    assert members_of(b"[1]") is members_of(b"{") is None
    assert check_body(body, BodyBounds(), CHATS).data == body


def test_a_frame_that_is_no_text_ends_its_connection_with_a_reason() -> None:
    decoder: FrameDecoder[str] = FrameDecoder(str, limit=100)
    with pytest.raises(WorkerError, match="a frame that cannot be read"):
        decoder.feed(b"\x06\x00\x00\x00\x91\xa3\xe9\xe9\xe9\x00")
