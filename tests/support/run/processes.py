"""Processes that a test starts, and what they hold: other tests run beside them."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

PREFIX = "--backend-config=python,shm-region-prefix-name="


@contextlib.contextmanager
def child(*words: str, **more: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Run a program until the block ends, which kills it: a failed test does not wait for it."""
    with subprocess.Popen(words, **more) as process:
        try:
            yield process
        finally:
            process.kill()


def memory_of_server(family: list[psutil.Process]) -> list[Path]:
    """Return what the tritonserver of a family, and its `serve`, have in /dev/shm."""
    words = [word for each in family if each.name() == "tritonserver" for word in each.cmdline()]
    (prefix,) = (word.removeprefix(PREFIX) for word in words if word.startswith(PREFIX))
    found = list(Path("/dev/shm").glob(f"{prefix}*"))
    assert found
    return found


def shared_memory(processes: list[psutil.Process], prefix: str) -> set[str]:
    """Return the files of shared memory that processes have mapped, by the start of their name."""
    paths = (each.path for process in processes for each in process.memory_maps())
    return {path for path in paths if path.startswith(f"/dev/shm/{prefix}")}
