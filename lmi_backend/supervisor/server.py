"""A tritonserver process and everything below it, from start to the last trace."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lmi_backend.errors import UnavailableError
from lmi_backend.serving.knocking import Draining, find_doors
from lmi_backend.supervisor.health import HealthWatch
from lmi_backend.supervisor.installation import STUB
from lmi_backend.supervisor.processes import running, with_children
from lmi_backend.supervisor.progress import say
from lmi_backend.supervisor.send_buffers import ADVICE, widen_send_buffers
from lmi_backend.supervisor.triton_http import TritonHttp
from lmi_backend.workers.pool import RUN_DIR_VARIABLE
from lmi_backend.workers.process import describe_exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.supervisor.installation import TritonServer
    from lmi_backend.supervisor.ports import Ports

_POLL_SECONDS = 0.2
# Memory that server and stub of a model share for requests and responses. When its 1 MiB has to
# grow, a stub of 24.10 whose threads send meanwhile may die of a segmentation fault (seen once).
_REGION_BYTES = 1 << 24
# After draining the server has nothing to wait for but idle connections.
_EXIT_SECONDS = 5
_WORKER_MODULE = "lmi_backend.workers.main"
_PROGRAMS = ("/tritonserver", f"/{STUB}")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  Triton's own place


class RunningServer:
    """Starts a server that loads some models, and ends it without leaving anything.

    Models are loaded by name (explicit mode), so that draining can unload them: Triton then
    refuses new requests and lets running ones end.
    """

    def __init__(
        self,
        server: TritonServer,
        repository: Path,
        names: list[str],
        ports: Ports,
        *,
        run: Path,
        log_file: Path | None,
    ) -> None:
        self._names, self._run = names, run
        self._client = TritonHttp(ports.url, timeout=5.0)
        self._shm_prefix = f"lmi_{os.getpid()}_"
        argv = [
            str(server.binary),
            f"--backend-directory={server.backends}",
            f"--model-repository={repository}",
            "--model-control-mode=explicit",
            # What is loaded has been written whole; completing it takes a second.
            "--disable-auto-complete-config",
            *(f"--load-model={name}" for name in names),
            f"--http-address={ports.host}",
            f"--http-port={ports.http}",
            f"--grpc-address={ports.host}",
            f"--grpc-port={ports.grpc}",
            f"--metrics-address={ports.host}",
            f"--metrics-port={ports.metrics}",
            f"--exit-timeout-secs={_EXIT_SECONDS}",
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
            f"--backend-config=python,shm-default-byte-size={_REGION_BYTES}",
        ]
        environment = server.environment(os.environ) | {RUN_DIR_VARIABLE: str(run)}
        with open(log_file, "ab") if log_file else contextlib.nullcontext() as log:
            # Its own session: Ctrl-C is ours to handle, the server must not hear it.
            self._process = subprocess.Popen(  # noqa: S603
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log else None,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise UnavailableError if the server has ended."""
        status = self._process.poll()
        if status is not None:
            message = f"tritonserver {describe_exit(status)}; its log says why"
            raise UnavailableError(message)

    def make_room(self) -> None:
        """Let responses wait for a slow HTTP thread; call it when the server listens."""
        try:
            widen_send_buffers(self._process.pid)
        except (ProcessLookupError, FileNotFoundError):
            return  # It has just ended; `watch` says how.
        except OSError as error:
            say(f"under much load tritonserver may lose HTTP responses ({error}); {ADVICE}")

    def watch(self, is_over: Callable[[], bool]) -> str:
        """Wait until `is_over`, and return nothing, or until something is wrong; return what."""
        health = HealthWatch(self._client.url, self._process.pid, self._names, self._run)
        health.start()
        try:
            while not is_over():
                if (status := self._process.poll()) is not None:
                    return f"tritonserver {describe_exit(status)}"
                if health.trouble:
                    return health.trouble
                time.sleep(_POLL_SECONDS)
        finally:
            health.stop()
        return ""

    def drain(self, seconds: float, is_over: Callable[[], bool]) -> int:
        """Refuse new requests and wait for the running ones; end those that take longer.

        Returns how many did.
        """
        draining = Draining(find_doors(self._process.pid, self._run), seconds)
        for name in self._names:
            self._client.status(f"/v2/repository/models/{name}/unload", method="POST", body={})
        while not draining.is_over and not is_over() and self._process.poll() is None:
            time.sleep(_POLL_SECONDS)
        return draining.cut

    def stop(self, *, gently: bool = True) -> int:
        """End the server, its stubs and workers, and remove their shared memory.

        Requests that still run get an error: their workers are told to stop first. A server in
        trouble is not waited for. Returns the exit status a shell should see.
        """
        family = self._family()
        for worker in self._workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.terminate()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM if gently else signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2 * _EXIT_SECONDS)
        _, alive = psutil.wait_procs(family, timeout=_EXIT_SECONDS)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=_EXIT_SECONDS)
        for region in _SHARED_MEMORY.glob(f"{self._shm_prefix}*"):
            region.unlink(missing_ok=True)
        status = self._process.poll()
        # A server that was told to end may say 1 because a client kept a connection open.
        return 0 if status in (0, 1, -signal.SIGTERM) else 1

    def _family(self) -> list[psutil.Process]:
        """Return the server and all below it, also what a dead server or stub left behind."""
        return with_children(running(_PROGRAMS, self._shm_prefix) + self._workers())

    def _workers(self) -> list[psutil.Process]:
        return running((_WORKER_MODULE,), str(self._run))
