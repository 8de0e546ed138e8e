"""Read recorded exchanges from files, folders and S3; count what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch.s3 import fetch_s3
from lmi_backend.files import LARGEST, read_bounded
from lmi_backend.migrate.records import (
    BadRecordError,
    RecordedExchange,
    read_har_entry,
    read_record,
)
from lmi_backend.printable import human_bytes

_Read = Callable[[Any, str], RecordedExchange | None]

SUFFIXES: Final = (".jsonl", ".json", ".har", ".ndjson")


@dataclass
class Corpus:
    exchanges: list[RecordedExchange] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Of records that cannot be read, each with its place."""
    skipped: int = 0
    """Entries of HAR files that load a page or a picture."""


def read_corpus(
    names: Iterable[str], environment: Mapping[str, str], *, say: Callable[[str], None]
) -> Corpus:
    corpus = Corpus()
    for name in names:
        is_remote = name.startswith("s3://")
        root = fetch_s3(name, environment, say=say) if is_remote else Path(name)
        for path in _files(root):
            name_there = f"{name.rstrip('/')}/{path.relative_to(root)}" if is_remote else str(path)
            _read_file(path, name_there, corpus)
    if not corpus.exchanges:
        problems = corpus.problems
        seen = f"; the first of {len(problems)} problems: {problems[0]}" if problems else ""
        raise ConfigurationError(f"no request can be read{seen}")
    return corpus


def _files(root: Path) -> list[Path]:
    if not root.is_dir():
        return [root]
    return sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES and path.is_file())


def _read_file(path: Path, name: str, corpus: Corpus) -> None:
    try:
        entries = _entries(path) if path.suffix in (".har", ".json") else None
        if entries is not None:
            for number, (read, entry) in enumerate(entries, 1):
                _add(corpus, f"{name}: entry {number}", read, entry)
            return
        for number, line in _lines(path):
            _add(corpus, f"{name}:{number}", _read_line, line)
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot be read: {error.strerror or error}") from error


def _entries(path: Path) -> list[tuple[_Read, Any]] | None:
    """Return what a file has that is JSON as a whole; None if each line is to be read.

    A HAR file, a list of records, or one record that is written on several lines.
    """
    data = read_bounded(path, LARGEST if path.suffix == ".json" else 8 * LARGEST)
    try:
        value = json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None
    log = value.get("log") if isinstance(value, dict) else None
    if isinstance(log, dict) and isinstance(entries := log.get("entries"), list):
        return [(read_har_entry, entry) for entry in entries]
    return [(read_record, each) for each in (value if isinstance(value, list) else [value])]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LARGEST + 1):
            number += 1
            if line.strip():
                yield number, line
            while len(line) > LARGEST and not line.endswith(b"\n"):
                line = file.readline(LARGEST)


def _read_line(line: bytes, place: str) -> RecordedExchange:
    if len(line) > LARGEST:
        raise BadRecordError(f"is too long; accepted: at most {human_bytes(LARGEST)}")
    try:
        record = json.loads(line)
    except RecursionError:
        raise BadRecordError("is nested too deeply") from None
    except ValueError as error:
        raise BadRecordError(f"is not JSON: {error}") from error
    return read_record(record, place)


def _add(corpus: Corpus, place: str, read: _Read, record: Any) -> None:
    try:
        records = read(record, place)
    except BadRecordError as error:
        corpus.problems.append(f"{place}: {error}")
        return
    if records is None:
        corpus.skipped += 1
    else:
        corpus.exchanges.append(records)
