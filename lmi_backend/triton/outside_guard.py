"""Kill a stub whose server has died, from outside of the stub's interpreter.

It is a program of its own, with the standard library only. A thread of the stub that sends a
metric to the dead server may hold the interpreter for ever. Then no Python of the stub runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import Final

# Longer than the stub's own guard takes to end the workers and the stub, the orderly way.
_GRACE_SECONDS: Final = 5.0
_LAST_SECONDS: Final = 10.0


def main(arguments: list[str]) -> None:
    """Wait, which costs nothing; the stub's end while its server lives is none of our business.

    Args:
        arguments: descriptors of server and stub, the model's name, and files of the stub that the
            server would have removed.
    """
    server, stub = int(arguments[0]), int(arguments[1])
    if server not in select.select([server, stub], [], [])[0]:
        return
    if not _has_ended(stub, _GRACE_SECONDS):
        signal.pidfd_send_signal(stub, signal.SIGKILL)
        _has_ended(stub, _LAST_SECONDS)
        text = (
            f"lmi-backend: {arguments[2]}: tritonserver has exited and its stub had not: killed\n"
        )
        # Whoever reads the log may have ended as well.
        with contextlib.suppress(OSError, AttributeError):
            os.write(sys.stderr.fileno(), text.encode("utf-8", "replace"))
    for path in arguments[3:]:
        # A `serve` that lives removes them too.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _has_ended(process: int, seconds: float) -> bool:
    return bool(select.select([process], [], [], seconds)[0])


if __name__ == "__main__":
    main(sys.argv[1:])
