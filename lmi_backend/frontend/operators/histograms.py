"""Histograms as Prometheus types them, from the three counters that Triton has for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FAMILY: Final = re.compile(r"^# HELP (?P<name>\S+)", re.MULTILINE)
_BUCKET: Final = "_bucket"
_PARTS: Final = (_BUCKET, "_sum", "_count")


def as_histograms(text: str) -> str:
    """Return a page of metrics on which each histogram is one family with its type.

    Collectors that go by the type would otherwise keep three counters.
    """
    starts = [match.start() for match in _FAMILY.finditer(text)]
    if not starts:
        return text
    ends = [*starts[1:], len(text)]
    blocks: dict[str, str] = {}
    for start, end in zip(starts, ends, strict=True):
        block = text[start:end]
        name = block.split(maxsplit=3)[2]
        blocks[name] = blocks.get(name, "") + block
    return text[: starts[0]] + "".join(_joined(blocks))


def _joined(blocks: Mapping[str, str]) -> Iterator[str]:
    histograms = {
        name.removesuffix(_BUCKET)
        for name in blocks
        if name.endswith(_BUCKET)
        and all(name.removesuffix(_BUCKET) + part in blocks for part in _PARTS)
    }
    for name, block in blocks.items():
        base, part = _split(name)
        if base not in histograms:
            yield block
        elif part == _BUCKET:
            yield _histogram(base, blocks)


def _split(name: str) -> tuple[str, str]:
    part = next((part for part in _PARTS if name.endswith(part)), "")
    return name.removesuffix(part), part


def _histogram(base: str, blocks: Mapping[str, str]) -> str:
    lines = blocks[base + _BUCKET].splitlines()
    about = lines[0].split(maxsplit=3)[3:]
    head = " ".join(["# HELP", base, *about])
    samples = [
        line
        for part in _PARTS
        for line in blocks[base + part].splitlines()
        if not line.startswith("#")
    ]
    return "".join(f"{line}\n" for line in (head, f"# TYPE {base} histogram", *samples))
