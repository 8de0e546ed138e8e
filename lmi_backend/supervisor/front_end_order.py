"""The order to restart a front end: what the command and `serve` say to each other.

They speak on a Unix socket in the private folder of the models' endpoints.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

import msgspec

from lmi_backend.endpoint.address import endpoint_folder
from lmi_backend.errors import UnavailableError, WorkerError
from lmi_backend.ipc.frames import FrameDecoder, encode, receive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGE_BYTES: Final = 1 << 16
"""Of one message, at most."""


class Order(msgspec.Struct, tag="restart"):
    """What the command sends."""

    seconds: float
    """Time that the old processes have to finish their requests."""


class InService(msgspec.Struct, tag="in service"):
    """The first answer: all processes are new, or none is from one on."""

    problem: str
    """Why that one, and those after it, are still the old ones; empty if all are new."""


class Ended(msgspec.Struct, tag="ended"):
    """The second answer, after a first one without a problem: the old processes have exited."""

    num_cut: int
    """How many of them took longer than they had, and were stopped."""


Answer = InService | Ended


def order_address(base: Path, pid: int) -> Path:
    """Return the socket on which a process takes orders that keeps front ends up.

    Args:
        base: the front ends' folder for temporary files.
        pid: of the process.
    """
    return endpoint_folder(base) / f"{pid}.front-ends"


def restart_front_ends(address: Path, seconds: float) -> Iterator[Answer]:
    """Order a restart, and yield the answers as they come.

    Raises:
        UnavailableError: nobody takes orders there, or the process has exited meanwhile.
    """
    decoder: FrameDecoder[Answer] = FrameDecoder(Answer, limit=MESSAGE_BYTES)
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.fspath(address))
            connection.sendall(encode([Order(seconds)]))
        except OSError as error:
            what = "the process that started the front end cannot restart it"
            raise UnavailableError(f"{what} ({address}: {error.strerror})") from error
        while True:
            try:
                yield from receive(connection, decoder)
            except (WorkerError, OSError) as error:
                raise UnavailableError("the front end was stopped meanwhile") from error
