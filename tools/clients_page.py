"""The tables of programs that run unchanged, in docs/clients.md and docs/triton-clients.md.

They are tests/data/clients.json. A row names its client's package, whose version is that of the
lock, and the test that runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from benchmark.perf_analyzer import VERSION
from page_parts import ROOT, table

TABLE = ROOT / "tests" / "data" / "clients.json"
NODE = ROOT / "tests" / "clients" / "node" / "package.json"
_PORT: Final = "HOST:8080"
"""Of the front end; other rows are of Triton's own ports."""
_NOTHING: Final = "nothing"
# Its package on PyPI is a place-holder.
_UNPACKAGED = {"perf_analyzer": VERSION}


def rows() -> list[dict[str, str]]:
    read: list[dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return read


def clients() -> Iterator[str]:
    yield from _table(is_front_end=True)


def triton_clients() -> Iterator[str]:
    yield from _table(is_front_end=False)


def _table(*, is_front_end: bool) -> Iterator[str]:
    known = versions()
    shown = (
        (
            f"{row['client']} {known.get(row['version'], row['version'])}".rstrip(),
            row["url"],
            *([row["key"]] if is_front_end else []),
            "" if row["change"] == _NOTHING else row["change"],
            f"`tests/{row['test']}`",
        )
        for row in rows()
        if (_PORT in row["url"]) is is_front_end
    )
    keys = ("key",) if is_front_end else ()
    yield from table(("client", "base URL", *keys, "what else must change", "shown by"), shown)


def versions() -> dict[str, str]:
    """Return the version of each program that is installed for tests/clients, by its name."""
    lock = ROOT / "requirements" / "clients.txt"
    lines = lock.read_text(encoding="utf-8").splitlines()
    pinned = [line.partition(" ")[0].partition("==") for line in lines if line[:1].strip("# ")]
    node = json.loads(NODE.read_text(encoding="utf-8"))["dependencies"]
    return {
        **{name: version for name, _, version in pinned},
        **{f"npm:{name}": version for name, version in node.items()},
        **_UNPACKAGED,
    }
