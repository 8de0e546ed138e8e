"""Ports for servers that tests start."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path

RUN = "LMI_BACKEND_TEST_RUN"
"""Variable of all processes of a run: its folder for temporary files."""
PORTS = range(12_000, 20_000)
"""Below those that the system gives to connections."""
ANY_PORTS = [f"--{name}port=0" for name in ("", "http-", "grpc-", "metrics-")]
"""Words for `serve`, which let the system choose free ports."""
_reserved: set[int] = set()
_reserving = threading.Lock()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has, of those that no connection gets by itself.

    A server may load for a minute before it listens; other tests connect by the thousand, and
    start servers, meanwhile. So a port is given once, to one of the machine's test processes.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if not _reserve(port):
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} of {count} ports are free of {PORTS}")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _reserve(port: int) -> bool:
    """Take a port until this process ends: a lock on one byte of a file that all share."""
    with _reserving:
        if port in _reserved:
            return False
        try:
            fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        _reserved.add(port)
        return True


@cache
def _reservations() -> int:
    return os.open(of_all_runs(), os.O_RDWR | os.O_CREAT, 0o600)


def of_all_runs() -> Path:
    """Return the file in which all test runs of this user hold locks."""
    run = os.environ.get(RUN)
    folder = Path(run).parent if run else Path(tempfile.gettempdir())
    return folder / f"lmi-backend-test-ports-{os.getuid()}"
