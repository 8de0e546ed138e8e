"""What is logged where processes of two releases of this package meet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lmi_backend import __version__
from lmi_backend.ipc.messages import PROTOCOL
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from lmi_backend.ipc.messages import Hello

_log = logging.getLogger(__name__)


class Refusals:
    """Of clients of a model; each process is logged once, which may try for as long as it lives."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._processes: set[int] = set()

    def reason(self, hello: Hello) -> str:
        """Return why a client is refused."""
        reason = difference(f"process {hello.pid}", hello)
        if hello.pid not in self._processes:
            self._processes.add(hello.pid)
            _log.error("a client of model %s is refused: %s", self._model, reason)
        return reason


def difference(peer: str, hello: Hello) -> str:
    """Return why a peer of another protocol is refused, for the logs of both sides.

    Args:
        peer: of a stub, as `process 12`.
        hello: its first message.
    """
    release = printable(hello.release, 20) or "of another release"
    return (
        f"{peer} is lmi-backend {release} (protocol {hello.protocol}), the model's stub is "
        f"lmi-backend {__version__} (protocol {PROTOCOL}). They do not understand each other: "
        "install one release for both, and start the server and the front end again"
    )
