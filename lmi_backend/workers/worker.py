"""The stub's end of one worker: start it, speak to it, end it."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from lmi_backend.engines.protocol import Capabilities, EngineConfig
from lmi_backend.errors import (
    ConfigurationError,
    ConnectionLostError,
    OptionError,
    WorkerError,
    WorkerStartError,
)
from lmi_backend.workers import messages as msg
from lmi_backend.workers.command import link_package, worker_command
from lmi_backend.workers.frames import FrameDecoder, encode, receive
from lmi_backend.workers.process import WorkerProcess, describe_exit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lmi_backend.plan import EnginePlan

_POLL_SECONDS = 0.2
# A worker beats every second; an event loop silent for this long does not come back.
_SILENCE_SECONDS = 30
_SEND_SECONDS = 10


class Worker:
    """A worker that is ready. `start_worker` makes one."""

    def __init__(self, name: str, process: WorkerProcess, connection: _Connection) -> None:
        self.name = name
        self.capabilities: Capabilities | None = None
        self._process, self._connection = process, connection

    @property
    def pid(self) -> int:
        """Process id, which is also its process group."""
        return self._process.pid

    def send(self, *messages: msg.ToWorker) -> None:
        """Send from any thread.

        Raises:
            ConnectionLostError: the worker is gone or does not read.
        """
        self._connection.send(encode(messages))

    def send_frame(self, frame: bytes) -> None:
        """Send messages that `encode` has packed; otherwise like `send`."""
        self._connection.send(frame)

    def read(self) -> list[msg.FromWorker]:
        """Block for the next messages.

        Raises:
            WorkerError: the worker is gone, silent, or cannot be understood.
        """
        return self._connection.read()

    def stop(self, seconds: float) -> None:
        """Ask it to end, and make it after some seconds."""
        try:
            self.send(msg.Stop())
            self._process.wait(seconds)
        except ConnectionLostError:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and all it started, at once."""
        self._process.kill()
        self._connection.close()

    def bury(self) -> str:
        """End what is left of a dead worker; return how it died."""
        status = self._process.wait(_POLL_SECONDS)
        self.kill()
        return describe_exit(status)


def start_worker(
    plan: EnginePlan,
    index: int,
    *,
    name: str,
    folder: Path,
    on_line: Callable[[str], None],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Worker:
    """Start worker `index` of a plan and return it once its engine is ready.

    Args:
        folder: private folder for its socket; the worker imports lmi_backend from there.
        on_line: gets each line it prints.
        is_cancelled: polled; True ends the start.

    Raises:
        ConfigurationError: the engine refuses an option.
        WorkerStartError: the worker ended or was not ready in time; quotes its last lines.
    """
    token = secrets.token_hex(16)
    address = folder / f"{index}.sock"
    address.unlink(missing_ok=True)
    link_package(folder)
    deadline = _Deadline(plan.load_timeout, is_cancelled)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(1)
        command = worker_command(
            plan, index=index, address=address, token=token, environment=os.environ
        )
        process = WorkerProcess(command, on_line)
        try:
            connection = _accept(listener, process, deadline, plan.max_message_size)
        except BaseException:
            process.kill()
            raise
        finally:
            address.unlink(missing_ok=True)
    worker = Worker(name, process, connection)
    try:
        _shake_hands(connection, token)
        worker.send(msg.Start(plan.engine, _engine_config(plan)))
        worker.capabilities = _await_ready(connection, process, deadline)
    except BaseException:
        worker.kill()
        raise
    connection.expect_beats()
    return worker


def _engine_config(plan: EnginePlan) -> EngineConfig:
    return EngineConfig(
        model=plan.model,
        arguments=dict(plan.engine_arguments),
        passthrough=dict(plan.passthrough),
        front_end=dict(plan.front_end),
        custom_file=plan.custom_file,
        custom_handler=plan.custom_handler,
        properties=dict(plan.properties),
        dialect=plan.dialect,
        output_formatter=plan.output_formatter,
        tgi_compat=plan.tgi_compat,
        adapters=dict(plan.adapters),
    )


class _Deadline:
    def __init__(self, seconds: float, is_cancelled: Callable[[], bool]) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._is_cancelled = is_cancelled

    def check(self, process: WorkerProcess) -> None:
        """Raise WorkerStartError if there is nothing to wait for any more."""
        if (status := process.poll()) is not None:
            message = f"the worker {describe_exit(status)} before it was ready. Its last lines:\n"
            raise WorkerStartError(message + process.last_lines())
        if time.monotonic() > self._end:
            message = (
                f"the worker was not ready within {self._seconds} s "
                "(option.model_loading_timeout). Its last lines:\n"
            )
            raise WorkerStartError(message + process.last_lines())
        if self._is_cancelled():
            message = "the start was given up: the server is stopping"
            raise WorkerStartError(message)


def _accept(
    listener: socket.socket, process: WorkerProcess, deadline: _Deadline, limit: int
) -> _Connection:
    listener.settimeout(_POLL_SECONDS)
    while True:
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            deadline.check(process)
        else:
            return _Connection(sock, limit)


def _shake_hands(connection: _Connection, token: str) -> None:
    match connection.read_first():
        case msg.Hello(protocol=msg.PROTOCOL, token=said) if hmac.compare_digest(said, token):
            return
        case _:
            message = "what connected to the worker's socket is not the worker"
            raise WorkerStartError(message)


def _await_ready(
    connection: _Connection, process: WorkerProcess, deadline: _Deadline
) -> Capabilities:
    while True:
        try:
            messages = connection.read()
        except ConnectionLostError:
            process.wait(_POLL_SECONDS)
            deadline.check(process)
            raise
        for message in messages:
            match message:
                case msg.Ready(capabilities=capabilities):
                    return capabilities
                case msg.StartFailed(message=text, option=option) if option:
                    raise OptionError(text, option=option, origin="engine")
                case msg.StartFailed(message=text):
                    raise ConfigurationError(text)
                case _:
                    pass
        deadline.check(process)


class _Connection:
    """A blocking socket that one thread reads and any thread writes."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._decoder: FrameDecoder[msg.FromWorker] = FrameDecoder(msg.FromWorker, limit=limit)
        self._lock = threading.Lock()
        self._is_ready = False
        # Kernel timeouts, not Python's: those would make the socket non-blocking for both ends.
        self._set_timeout(socket.SO_SNDTIMEO, _SEND_SECONDS)
        self._set_timeout(socket.SO_RCVTIMEO, _POLL_SECONDS)

    def expect_beats(self) -> None:
        """From now on silence is a fault."""
        self._is_ready = True
        self._set_timeout(socket.SO_RCVTIMEO, _SILENCE_SECONDS)

    def send(self, frame: bytes) -> None:
        try:
            with self._lock:
                self._socket.sendall(frame)
        except OSError as error:
            # Half a frame may be on its way: the worker could never read on from there.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            message = f"the worker cannot be reached: {error}"
            raise ConnectionLostError(message) from error

    def read(self) -> list[msg.FromWorker]:
        try:
            return receive(self._socket, self._decoder)
        except BlockingIOError:
            if not self._is_ready:
                return []
            message = f"the worker said nothing for {_SILENCE_SECONDS} s"
            raise WorkerError(message) from None
        except OSError as error:
            message = f"the worker's socket failed: {error}"
            raise ConnectionLostError(message) from error

    def read_first(self) -> msg.FromWorker | None:
        for _ in range(int(_SEND_SECONDS / _POLL_SECONDS)):
            if messages := self.read():
                return messages[0]
        return None

    def close(self) -> None:
        self._socket.close()

    def _set_timeout(self, which: int, seconds: float) -> None:
        whole = int(seconds)
        timeval = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, which, timeval)
