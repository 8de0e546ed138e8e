"""How many values a body holds, counted before it is read."""

from __future__ import annotations

from lmi_backend.errors import RequestError


def check_values(body: bytes, most: int) -> None:
    """Raise RequestError for JSON with more values than `most`, without reading it.

    Each value but the first of a list or an object has a comma before it.
    """
    if body.count(b",") <= most:
        return
    # Those in strings do not count.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = bare.count(b'"') // 2
    if count <= 2 * most:
        count = b"".join(bare.split(b'"')[::2]).count(b",")
    if count > most:
        raise RequestError(f"has {count} values", field="the body", accepted=f"at most {most}")
