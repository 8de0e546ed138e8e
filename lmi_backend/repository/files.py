"""Write the files of a model's folder, keep what somebody edited, and say what changed."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import read_bounded
from lmi_backend.options import FILE_NAME
from lmi_backend.options.properties import parse_properties
from lmi_backend.options.spec import WrittenSetting
from lmi_backend.printable import printable
from lmi_backend.repository.record import RECORD, Record, digest, salted

CONFIG: Final = "config.pbtxt"
_SHOWN: Final = 400
"""Characters of a line that has changed."""
WARMUP: Final = "warmup/"
# Older conversions have the digest of serving.properties too, which is in the record now.
_STAMP: Final = re.compile(r"# digests?: config (\w+)(?:, properties (\w*))?\n")
_OPTIONS_LINE: Final = re.compile(r'string_value: "\{.*')


def stamped(what: str, version: str, body: str) -> str:
    """Return config.pbtxt with a first line for people and the digest that tells edits by hand."""
    return f"# Written by lmi-backend {version}{what}.\n# digest: config {digest(body)}\n{body}"


def write_files(
    folder: Path,
    files: Mapping[str, str],
    record: Record | None,
    *,
    force: bool,
    like: Path | None = None,
) -> list[str]:
    """Write files by their path in a folder; return a line for each change to what was there.

    Args:
        record: that of the conversion before.
        force: write over edits made by hand.
        like: the user's serving.properties; who may not read it may read neither the copy nor
            the record, and where there is none, nobody else may.

    Raises:
        ConfigurationError: the folder cannot be written, or holds edits by hand.
    """
    try:
        before = {path: read(folder / path) for path in files if (folder / path).is_file()}
        if not force:
            _refuse_edits(folder, files, before, record)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if before.get(path) != text:
                replace(folder / path, text, is_private=path == RECORD)
        # Also where they are the same, but came with a copy that opened them to others.
        for path in files.keys() & {FILE_NAME, RECORD}:
            _copy_mode(like, folder / path)
    except OSError as error:
        raise ConfigurationError(f"{folder}: cannot be written: {error.strerror}") from error
    return [line for path in before for line in _difference(path, before[path], files[path])]


def read(path: Path) -> str:
    """Return the text of a user's file; it may be UTF-8 or Latin-1, its bytes are kept.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return read_bounded(path).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error


def replace(path: Path, text: str, *, is_private: bool = False) -> None:
    """Write in one step: a server that polls the repository never sees half a file."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    # A file of our own from the start: nobody opens it before it is closed to others.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    closed = is_private or path.name == FILE_NAME
    with open(os.open(draft, flags, 0o600 if closed else 0o666), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    os.replace(draft, path)


def _copy_mode(source: Path | None, copy: Path) -> None:
    """Let those read a copy who may read its source: it may hold secrets."""
    if source is None or not source.is_file():
        copy.chmod(0o600)
        return
    status = source.stat()
    # Either is refused where the copy is another user's.
    with contextlib.suppress(PermissionError):
        os.chown(copy, -1, status.st_gid)
    with contextlib.suppress(PermissionError):
        copy.chmod(status.st_mode & 0o644)


def _refuse_edits(
    folder: Path, files: Mapping[str, str], before: Mapping[str, str], record: Record | None
) -> None:
    """Refuse to write over what somebody has changed since it was written, or wrote himself."""
    stamp = _STAMP.search(before.get(CONFIG, ""))
    for path, text in before.items():
        if path == CONFIG:
            is_ours = stamp is not None and stamp[1] == digest(text[stamp.end() :])
        elif path == FILE_NAME:
            is_ours = (stamp is not None and stamp[2] == digest(text)) or (
                record is not None and record.properties == salted(record.salt, text)
            )
        elif path.startswith(WARMUP):
            is_ours = False
        elif path.endswith(".json"):
            # The record, and adapters, which come and go and which nothing here reads.
            is_ours = True
        else:
            is_ours = "lmi_backend.triton.model import TritonPythonModel" in text
        if not is_ours and text != files[path]:
            raise ConfigurationError(
                f"{folder / path}: was edited by hand, or is not from lmi-backend; "
                "--force writes over it"
            )


def _difference(path: str, before: str, after: str) -> Iterator[str]:
    """Yield the lines that differ, without secrets."""
    if path == RECORD:
        # What is in it is said of serving.properties.
        return
    old, new = _shown(path, before), _shown(path, after)
    lines = difflib.unified_diff(old, new, lineterm="", n=0)
    changes = [
        line for line in list(lines)[2:] if line[0] in "+-" and not line[1:].startswith("# ")
    ]
    if path == FILE_NAME and not changes and before != after:
        changes = ["what is not shown has changed"]
    yield from (f"{path}: {printable(line, _SHOWN)}" for line in changes)


def _shown(path: str, text: str) -> list[str]:
    if path != FILE_NAME:
        # An older conversion wrote the options there, and hid fewer secrets.
        return [_OPTIONS_LINE.sub('string_value: "{…}"', line) for line in text.splitlines()]
    try:
        written = parse_properties(text)
    except ConfigurationError:
        return []
    return [WrittenSetting(each.key, each.value, FILE_NAME).written for each in written]
