"""Which of Triton's paths are for clients. Repositories, memory, logging and traces are not."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_VERSION: Final = r"(/versions/(?P<version>\d{1,19}))?"
_MODEL: Final = rf"/v2/models/(?P<model>[\w-][\w.-]{{0,254}}){_VERSION}"
_PATHS: Final = tuple(
    (method, re.compile(f"{pattern}/?", re.ASCII))
    for method, pattern in (
        ("GET", r"/v2(/(health/live|health/ready|models/stats))?"),
        ("GET", rf"{_MODEL}(/(?P<word>ready|config|stats))?"),
        ("POST", rf"{_MODEL}/(?P<word>infer|generate|generate_stream)"),
    )
)


class TritonPath(NamedTuple):
    """A path of Triton, and what a request to it is for."""

    text: str
    """As it is written to Triton."""
    method: str
    """The only one that it has."""
    model: str = ""
    version: str = ""
    word: str = ""
    """What the model is to do."""

    @property
    def is_stream(self) -> bool:
        return self.word == "generate_stream"


def read_path(text: str) -> TritonPath | None:
    """Return a path as it was written; None for one that is not for clients."""
    for method, pattern in _PATHS:
        if (found := pattern.fullmatch(text)) is not None:
            named = {name: value or "" for name, value in found.groupdict().items()}
            return TritonPath(text.rstrip("/"), method, **named)
    return None
