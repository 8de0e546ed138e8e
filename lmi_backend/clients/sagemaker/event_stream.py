"""Amazon's binary event stream, which SageMaker's streaming clients read."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_TYPE: Final = "application/vnd.amazon.eventstream"
_PART_BYTES: Final = 1 << 20
"""Of one event; botocore reads up to 24 MB."""
_STRING: Final = 7
"""The type of a header's value."""


def payload_parts(data: bytes) -> bytes:
    """Return the events that carry some bytes of an answer, up to 1 MiB each; none for none."""
    headers = {
        ":message-type": "event",
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
    }
    parts = (data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES))
    return b"".join(_message(headers, part) for part in parts)


def stream_error(message: str) -> bytes:
    """Return the last event of an answer that failed after it had begun."""
    headers = {
        ":message-type": "exception",
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
    }
    body = {"Message": message, "ErrorCode": "ModelInvocationError"}
    return _message(headers, json.dumps(body).encode())


def _message(headers: Mapping[str, str], payload: bytes) -> bytes:
    head = b"".join(_header(name, value) for name, value in headers.items())
    # Two lengths and their checksum; the message ends with a checksum of all of it.
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    data = prelude + struct.pack("!I", crc32(prelude)) + head + payload
    return data + struct.pack("!I", crc32(data))


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack("!B", len(key)) + key + struct.pack("!BH", _STRING, len(text)) + text
