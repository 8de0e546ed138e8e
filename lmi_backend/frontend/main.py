"""The process of a front end that `serve` keeps up: `python -m lmi_backend.frontend.main`.

Its settings are in the environment. Its first argument is the run folder, by which a clean-up finds
the process. The second is the descriptor of the socket that listens, or -1. The third is that of a
pipe, to which it reports its health each second.
"""

from __future__ import annotations

import os
import socket
import sys

from lmi_backend.errors import LmiError
from lmi_backend.front_end_settings import VARIABLE, decode
from lmi_backend.frontend.http.server import serve
from lmi_backend.printable import say
from lmi_backend.redaction import Redactor


def main() -> int:
    """Serve until a signal; return the exit status."""
    settings = decode(os.environ[VARIABLE])
    try:
        number, heartbeat = map(int, sys.argv[-2:])
        listener = socket.socket(fileno=number) if number >= 0 else None
        return serve(settings, heartbeat, listener)
    except LmiError as error:
        say(Redactor(os.environ)(str(error)))
        return 1


if __name__ == "__main__":
    sys.exit(main())
