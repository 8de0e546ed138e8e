"""Speak to the models of a server on this machine, from another process."""

from __future__ import annotations

import os
import socket
from functools import partial
from typing import TYPE_CHECKING

from lmi_backend.endpoint.address import endpoint_folder, endpoint_name
from lmi_backend.errors import UnavailableError, WorkerError
from lmi_backend.files import private_folder
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode, receive
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# For the errors of those that are cut, beyond the time that all have.
_ANSWER_SECONDS = 10.0


def find_endpoints(server: int, base: Path) -> list[Path]:
    """Return the endpoints of all models of a server, by its process id and its folder for such.

    Raises:
        ConfigurationError: somebody else has made that folder.
    """
    folder = endpoint_folder(base)
    if folder.is_symlink() or folder.exists():
        private_folder(folder)
    return sorted(folder.glob(f"{server}-*.sock"))


def is_endpoint_of(endpoint: Path, model: str) -> bool:
    return endpoint.stem.partition("-")[2] == endpoint_name(model)


def request_health(endpoint: Path, seconds: float) -> msg.Health | None:
    """Return how the model behind an endpoint is; None if its stub does not answer in time."""
    answer = _ask(endpoint, msg.AskHealth(), seconds)
    return answer if isinstance(answer, msg.Health) else None


def count_workers(endpoint: Path, seconds: float) -> int:
    """Return how many workers a model has. Raises UnavailableError: its stub does not answer."""
    answer = _ask(endpoint, msg.AskState(), seconds)
    if not isinstance(answer, msg.State) or "workers" not in answer.values:
        raise UnavailableError("the model does not answer")
    return len(answer.values["workers"])


def renew_worker(endpoint: Path, index: int, seconds: float, load_seconds: float) -> int:
    """Let a worker's requests resume elsewhere and restart it; return how many failed.

    Args:
        seconds: for requests that cannot resume to end.
        load_seconds: the new worker may take.

    Raises:
        UnavailableError: it could not be, or the stub does not answer.
    """
    answer = _ask(endpoint, msg.RenewWorker(index, seconds), seconds + load_seconds)
    if not isinstance(answer, msg.Done):
        raise UnavailableError(f"worker {index} was not ready again in time")
    if answer.problem:
        raise UnavailableError(f"worker {index}: {answer.problem}")
    return answer.cut


class Draining:
    """Drains models, within some seconds. From the start on they take no more requests."""

    def __init__(self, endpoints: Iterable[Path], seconds: float) -> None:
        self._seconds = seconds
        self._cut: list[int] = []
        self._threads = [
            guarded_thread("lmi-drain", partial(self._drain, each)) for each in endpoints
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def cut(self) -> int:
        """Requests that took too long and got an error."""
        return sum(self._cut)

    def _drain(self, endpoint: Path) -> None:
        # One that is not answered was unloaded, or died: nothing runs there either.
        answer = _ask(endpoint, msg.Drain(self._seconds), self._seconds + _ANSWER_SECONDS)
        if isinstance(answer, msg.Done):
            self._cut.append(answer.cut)


def _ask(endpoint: Path, message: msg.FromClient, seconds: float) -> msg.ToClient | None:
    decoder: FrameDecoder[msg.ToClient] = FrameDecoder(msg.ToClient, limit=LARGEST_FRAME)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(os.fspath(endpoint))
            connection.sendall(encode([message]))
            while not (answers := receive(connection, decoder)):
                pass
        except (WorkerError, OSError):
            return None
    return answers[0]
