"""Amazon's events, read by its own library."""

import json

from botocore.eventstream import EventStreamBuffer

from lmi_backend.clients.sagemaker.event_stream import payload_parts, stream_error


def _read(data: bytes) -> list[tuple[dict[str, str], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(dict(event.headers), event.payload) for event in buffer]


def test_a_part_holds_the_bytes() -> None:
    ((headers, payload),) = _read(payload_parts(b"some \xff bytes"))
    assert (headers[":message-type"], headers[":event-type"]) == ("event", "PayloadPart")
    assert payload == b"some \xff bytes"


def test_much_is_several_parts_and_nothing_is_none() -> None:
    data = bytes(range(256)) * 10_000
    parts = _read(payload_parts(data))
    assert len(parts) == 3
    assert b"".join(payload for _, payload in parts) == data
    assert payload_parts(b"") == b""


def test_an_error_ends_a_stream() -> None:
    ((headers, payload),) = _read(stream_error("the engine died: ÿ"))
    assert headers[":exception-type"] == "ModelStreamError"
    assert json.loads(payload)["Message"] == "the engine died: ÿ"
