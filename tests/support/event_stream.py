"""Read Amazon's binary event stream, of whose headers all values are strings."""

import struct


def events_of(data: bytes) -> list[tuple[dict[str, str], bytes]]:
    """Return headers and payload of each message."""
    found = []
    while data:
        length, head_length = struct.unpack("!II", data[:8])
        found.append((_headers(data[12 : 12 + head_length]), data[12 + head_length : length - 4]))
        data = data[length:]
    return found


def _headers(data: bytes) -> dict[str, str]:
    headers = {}
    while data:
        name, data = data[1 : 1 + data[0]], data[1 + data[0] :]
        (size,) = struct.unpack("!H", data[1:3])
        headers[name.decode()], data = data[3 : 3 + size].decode(), data[3 + size :]
    return headers
