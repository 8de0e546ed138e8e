"""Put a finished folder in its place at once: an interrupted run leaves nothing half done."""

from __future__ import annotations

import fcntl
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import TinyModelError
from .stamp import is_ours, source_digest, write_stamp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Let one process at a time make `output`; others wait, and then find it made."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.with_name(f".{output.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """Give an empty sibling folder to work in, which becomes `output` if the block ends well.

    Call it inside `locked`. What a killed run left in the sibling folder is removed first.

    Raises:
        TinyModelError: `output` holds something that this tool did not make.
    """
    if not is_ours(output):
        raise TinyModelError(f"{output} was not made by this tool; remove it first")
    digest = source_digest()
    work, old = (output.with_name(f".{output.name}.{part}") for part in ("new", "old"))
    for left in (work, old):
        shutil.rmtree(left, ignore_errors=True)
    work.mkdir()
    try:
        yield work
        write_stamp(work, digest)
        if output.exists():
            output.rename(old)
        work.rename(output)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
