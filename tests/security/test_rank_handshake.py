"""Strangers at the TCP port where the ranks of a worker over several machines connect."""

import contextlib
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.errors import WorkerStartError
from lmi_backend.ipc.frames import encode
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import Property
from lmi_backend.plan import plan_model
from lmi_backend.pool.command import link_package
from lmi_backend.pool.launch import launch
from tests.support.run.waiting import HANG_SECONDS, wait_for

SILENT = 200
# Ranks begin when the test says so, so that strangers surely come first.
_HELD = """\
#!/bin/sh
while [ ! -e {folder}/go ]; do sleep 0.05; done
exec "{python}" "$@"
"""


def _start(*args: Any, **kwargs: Any) -> Any:
    return launch(*args, **kwargs).ready()


class Load:
    """A worker of two ranks that is being loaded, over TCP as on several machines."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor, **options: Any) -> None:
        self._folder = folder
        self.is_cancelled = threading.Event()
        interpreter = folder / "python"
        interpreter.write_text(_HELD.format(folder=folder, python=sys.executable))
        interpreter.chmod(0o755)
        # Both names are this machine's, so mpirun needs no ssh.
        (folder / "hosts").write_text("127.0.0.1\n127.0.0.1\n")
        link_package(folder)
        properties = {
            "engine": "MPI",
            "option.rolling_batch": "echo",
            "option.tensor_parallel_degree": 2,
            "option.mpi_hostfile": folder / "hosts",
            "option.pythonExecutable": interpreter,
        } | {f"option.{name}": value for name, value in options.items()}
        lines = [Property(key, str(value), 0) for key, value in properties.items()]
        plan = plan_model(resolve_options(lines, {}, folder=folder), os.environ)
        assert plan.parallel.hosts
        self.result: Future[Any] = pool.submit(
            _start,
            plan,
            0,
            name="model/0",
            folder=folder,
            on_line=lambda line: None,
            is_cancelled=self.is_cancelled.is_set,
        )
        self.mpirun, self.address = self._find()

    def _find(self) -> tuple[psutil.Process, tuple[str, int]]:
        """Find the port, as any user of the machine can."""
        while not self.result.done():
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error, ValueError):
                    words = child.cmdline()
                    host, _, port = words[words.index("--connect") + 1].partition(":")
                    return child, (host, int(port))
            time.sleep(0.01)
        raise AssertionError(self.result.exception())

    def let_the_ranks_begin(self) -> None:
        (self._folder / "go").touch()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., Load]]:
    loads: list[Load] = []

    def begin(**options: Any) -> Load:
        loads.append(Load(tmp_path, pool, **options))
        return loads[-1]

    with ThreadPoolExecutor() as pool:
        yield begin
        for each in loads:
            each.is_cancelled.set()
            if each.result.exception(60) is None:
                each.result.result().kill()


class Strangers:
    """Connections that are made again as soon as they are ended, until the block is left."""

    def __init__(self, load: Load, count: int, words: Callable[[], Iterator[bytes]]) -> None:
        self._address, self._words = load.address, words
        self._is_over = threading.Event()
        self._sockets: list[tuple[socket.socket, Iterator[bytes]]] = []
        self._all_are_here = threading.Event()
        self._count = count
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Strangers":
        self._thread.start()
        assert self._all_are_here.wait(HANG_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for sock, _words in self._sockets:
            sock.close()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                while len(self._sockets) < self._count:
                    self._sockets.append(self._connect())
            except OSError:
                # The listener is closed: all ranks are there.
                self._all_are_here.set()
                return
            self._all_are_here.set()
            self._sockets = [each for each in self._sockets if self._speaks(*each)]
            self._is_over.wait(0.02)

    def _connect(self) -> tuple[socket.socket, Iterator[bytes]]:
        sock = socket.create_connection(self._address, timeout=HANG_SECONDS)
        sock.setblocking(False)
        return sock, self._words()

    def _speaks(self, sock: socket.socket, words: Iterator[bytes]) -> bool:
        """Say the next words; tell whether the connection still stands."""
        try:
            sock.send(next(words, b""))
            with contextlib.suppress(BlockingIOError):
                while sock.recv(4096):
                    pass
                sock.close()
                return False
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
            return False
        return True


def _silence() -> Iterator[bytes]:
    yield b""


def _announce() -> Iterator[bytes]:
    """4 GiB that follow, and as many bytes of them as are taken."""
    yield b"\xff\xff\xff\xff"
    while True:
        yield b"x" * 65536


def _dribble() -> Iterator[bytes]:
    """A Hello that is always about to be complete; 50 bytes a second at most."""
    yield struct.pack("<I", 4000)
    while True:
        yield b"\x90"


def _hello(token: Any) -> Callable[[], Iterator[bytes]]:
    """A Hello in the forms of this protocol and of the one before, with a bad token."""

    def words() -> Iterator[bytes]:
        new = ["Hello", 5, 1, 0, b"n" * 16, token]
        yield encode([random.choice((["Hello", 4, token, 1, 0], new))])

    return words


def _noise() -> Iterator[bytes]:
    while True:
        yield os.urandom(512)


ATTACKS: tuple[Callable[[], Iterator[bytes]], ...] = (
    _silence, _announce, _dribble, _noise, _hello("é" * 16), _hello({"a": 1}), _hello(b"\xff" * 32)
)  # fmt: skip


@contextlib.contextmanager
def _attacked(load: Load) -> Iterator[None]:
    """Let each attack go on at once; one by one they are in tests/unit/ipc/test_handshake.py."""
    with contextlib.ExitStack() as stack:
        for words in ATTACKS:
            stack.enter_context(Strangers(load, 4, words))
        stack.enter_context(Strangers(load, SILENT - 4, _silence))
        yield


def test_a_load_succeeds_under_each_attack_at_once(load: Callable[..., Load]) -> None:
    loading = load()
    with _attacked(loading):
        loading.let_the_ranks_begin()
        assert loading.result.result(HANG_SECONDS).capabilities.engine == "echo"


def test_a_load_still_runs_out_of_time(load: Callable[..., Load]) -> None:
    loading = load(model_loading_timeout=2)
    with (
        _attacked(loading),
        pytest.raises(
            WorkerStartError, match=r"not ready within 2 s \(option.model_loading"
        ) as failure,
    ):
        loading.result.result(HANG_SECONDS)
    assert "refused, the last from 127.0.0.1" in str(failure.value)


@pytest.mark.parametrize("how", ["killed", "cancelled"])
def test_an_end_is_seen_while_strangers_are_silent(load: Callable[..., Load], how: str) -> None:
    loading = load()
    with Strangers(loading, SILENT, _silence):
        if how == "killed":
            loading.mpirun.send_signal(signal.SIGKILL)
        else:
            loading.is_cancelled.set()
        with pytest.raises(WorkerStartError, match=how):
            loading.result.result(HANG_SECONDS)


def test_nobody_connects_once_the_ranks_are_there(load: Callable[..., Load]) -> None:
    """The engine would load for 10 minutes; the port is closed before that."""
    loading = load(start_seconds=600)
    loading.let_the_ranks_begin()

    def is_closed() -> bool:
        assert not loading.result.done()
        try:
            socket.create_connection(loading.address, timeout=HANG_SECONDS).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_for(is_closed)


def test_the_token_is_on_no_command_line(load: Callable[..., Load]) -> None:
    loading = load()
    token = loading.mpirun.environ()["LMI_BACKEND_TOKEN"]
    assert len(token) == 32
    lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert any("-x LMI_BACKEND_TOKEN" in line for line in lines)
    assert not [line for line in lines if token in line]
