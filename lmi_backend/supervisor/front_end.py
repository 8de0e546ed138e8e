"""Keep a front end up beside the server: its own process, which outlives the server's."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from lmi_backend.pool.process import describe_exit
from lmi_backend.printable import say
from lmi_backend.supervisor.reloading import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

PROGRAM: Final = "lmi_backend.cli.main"
"""The module that it runs; with the word `frontend`."""
LIBRARIES: Final = ("uvicorn", "uvloop", "httptools", "starlette", "aiohttp")
"""What `lmi-backend[frontend]` brings."""
_STOP_SECONDS: Final = 10.0


def missing_libraries() -> list[str]:
    """Return which of its libraries this environment lacks."""
    return [name for name in LIBRARIES if importlib.util.find_spec(name) is None]


@contextlib.contextmanager
def front_end(
    arguments: Sequence[str], secrets: Mapping[str, str], log_file: Path | None = None
) -> Iterator[None]:
    """Run `lmi-backend frontend` with some arguments until the end of the block.

    It is started again when it ends, with growing pauses. Its log goes to `log_file`, or to ours.
    `secrets` are in its environment, which only its own user reads.
    """
    ended = threading.Event()
    start = partial(
        _start, [sys.executable, "-m", PROGRAM, "frontend", *arguments], secrets, log_file
    )
    keeper = threading.Thread(target=_keep, args=(start, start(), ended), name="lmi-front-end")
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def _start(
    command: Sequence[str], secrets: Mapping[str, str], log_file: Path | None
) -> subprocess.Popen[bytes]:
    with open(log_file, "ab") if log_file else contextlib.nullcontext() as log:
        # Its own session: Ctrl-C is ours to handle. It serves until the models have drained.
        return subprocess.Popen(  # noqa: S603
            command,
            env={**os.environ, **secrets, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=True,
        )


def _keep(
    start: Callable[[], subprocess.Popen[bytes]],
    process: subprocess.Popen[bytes],
    ended: threading.Event,
) -> None:
    backoff = Backoff()
    while not ended.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(0.2)
            if ended.is_set():
                break
            pause = backoff.pause()
            say(f"the front end {describe_exit(status)}: it is started again in {pause:.0f} s")
            ended.wait(pause)
            process = start()
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
