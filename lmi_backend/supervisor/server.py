"""A tritonserver process, from start to end, and what it is started with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import psutil

from lmi_backend.endpoint.control import Draining, find_endpoints
from lmi_backend.errors import ConfigurationError, UnavailableError
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.plan.multi_model import Reservations
from lmi_backend.pool.process import describe_exit
from lmi_backend.printable import say
from lmi_backend.repository.files import CONFIG
from lmi_backend.repository.restricted_apis import CLIENT_MEMORY, KEY_VARIABLES
from lmi_backend.supervisor.enforced_umask import enforce_umask
from lmi_backend.supervisor.health import HealthMonitor
from lmi_backend.supervisor.log_relay import STANDARD_ERROR, log_options
from lmi_backend.supervisor.private_arguments import REDACTED, start_privately
from lmi_backend.supervisor.processes import (
    StubStarts,
    end_with,
    kill,
    send_kill,
    stubs_of,
    wait_for_ends,
)
from lmi_backend.supervisor.reloading import ModelReloads
from lmi_backend.supervisor.send_buffers import ADVICE, widen_send_buffers
from lmi_backend.supervisor.triton_http import TritonHttp
from lmi_backend.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lmi_backend.plan.hardware import Allocation
    from lmi_backend.repository.restricted_apis import Restriction
    from lmi_backend.supervisor.installation import TritonServer
    from lmi_backend.supervisor.ports import Ports
    from lmi_backend.supervisor.processes import Traces
    from lmi_backend.supervisor.run_folder import RunFolder


# After draining the server has nothing to wait for but idle connections.
EXIT_SECONDS: Final = 5
# Memory that server and stub of a model share for requests and responses. When its 1 MiB has to
# grow, a stub of 24.10 whose threads send meanwhile may die of a segmentation fault (seen once).
_REGION_BYTES: Final = 1 << 24
_BODY: Final = "--http-max-input-size"
# Triton's default.
_BODY_BYTES: Final = 64 << 20
# A text may be twice as long as a string of JSON: each of its quotes and line ends is two bytes.
_JSON_GROWTH: Final = 2


@dataclass(frozen=True)
class ServerSetup:
    installation: TritonServer
    repository: Path
    names: list[str]
    """Models to load. By name (explicit mode), so that they can be unloaded and loaded again."""
    ports: Ports
    folder: RunFolder
    traces: Traces
    restriction: Restriction
    log: int = STANDARD_ERROR
    """The descriptor on which the server and all below it log."""
    allocations: tuple[Allocation, ...] = ()
    """What each model is to get of the devices, in any order of their loads."""
    largest_message: int = 0
    """Of all models, in bytes."""
    required: frozenset[str] = frozenset()

    def prepare(self) -> None:
        """Write what is missing of the run folder; raise if it, or a model, cannot be had."""
        self.folder.restore()
        for name in self.names:
            if not (config := self.repository / name / CONFIG).is_file():
                raise ConfigurationError(f"{config}: was removed; --model-repository is needed")

    def client(self, timeout: float | None) -> TritonHttp:
        return TritonHttp(self.ports.url, timeout=timeout, headers=self.restriction.headers)

    def argv(self, restriction: Restriction) -> list[str]:
        return [
            str(self.installation.binary),
            f"--backend-directory={self.installation.backends}",
            f"--model-repository={self.repository}",
            "--model-control-mode=explicit",
            # What is loaded has been written whole; completing it takes a second.
            "--disable-auto-complete-config",
            # One that cannot be loaded does not end the others.
            "--exit-on-error=false",
            *(f"--load-model={name}" for name in self.names),
            *self.ports.arguments(),
            # Ports of their own, and before 26.03 a way around the restrictions. With AIP_MODE set,
            # Triton would open Vertex AI's and none of the others.
            "--allow-sagemaker=false",
            "--allow-vertex-ai=false",
            "--allow-http=true",
            "--allow-grpc=true",
            "--http-header-forward-pattern=(?i)^trace(parent|state)$",
            "--grpc-header-forward-pattern=(?i)^trace(parent|state)$",
            *restriction.arguments(),
            *self._newer_arguments(restriction),
            f"--exit-timeout-secs={EXIT_SECONDS}",
            f"--backend-config=python,shm-region-prefix-name={self.traces.names.prefix}",
            f"--backend-config=python,shm-default-byte-size={_REGION_BYTES}",
        ]

    def _newer_arguments(self, restriction: Restriction) -> Iterator[str]:
        """Yield what not every release takes."""
        # Off by default from 26.04 on, so that opening the API alone would open nothing.
        if self.installation.takes(CLIENT_MEMORY):
            yield f"{CLIENT_MEMORY}={str('shared-memory' not in restriction.apis).lower()}"
        # From 25.06 on Triton refuses bodies above 64 MiB before a model's own bound is asked.
        if self.installation.takes(_BODY):
            yield f"{_BODY}={max(_BODY_BYTES, _JSON_GROWTH * self.largest_message)}"


_POLL_SECONDS: Final = 0.2
_ANSWER_SECONDS: Final = 2.0
_URGENT_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Problem:
    text: str
    is_final: bool = False


class RunningServer:
    def __init__(self, setup: ServerSetup) -> None:
        setup.prepare()
        self._setup = setup
        self.client = setup.client(5.0)
        reservations = Reservations(str(setup.traces.run))
        self._planned = [
            reservations.expect(allocation) for allocation in setup.allocations if allocation.shares
        ]
        self.failed: dict[str, str] = {}
        """Models that could not be loaded at the start, and why; they are tried again."""
        self._process = _start(setup)
        self._starts = StubStarts(self._process.pid)

    def check(self) -> None:
        """Raise UnavailableError if the server, which is being started, will never be ready."""
        if (status := self._process.poll()) is not None:
            raise UnavailableError(f"tritonserver {describe_exit(status)}; its log says why")
        if self._starts.has_dead_one():
            raise UnavailableError("a model's stub died while it was started; the log may say why")

    @property
    def has_crashed(self) -> bool:
        status = self._process.poll()
        return status is not None and status < 0

    def widen_buffers(self) -> None:
        """Let responses wait for a slow HTTP thread; call it when the server listens."""
        try:
            widen_send_buffers(self._process.pid)
        except (ProcessLookupError, FileNotFoundError):
            return  # It has just ended; `wait_for_problem` says how.
        except OSError as error:
            text = f"under much load tritonserver may lose HTTP responses ({error}); {ADVICE}"
            say(text, "WARNING")

    def wait_for_problem(
        self, is_over: Callable[[], bool], *, reloads: ModelReloads | None
    ) -> Problem | None:
        """Wait for a problem and return it, or return nothing once `is_over` is true.

        `reloads` loads models again whose workers failed permanently; without it such a model is a
        problem.
        """
        setup, client = self._setup, self._setup.client(_ANSWER_SECONDS)
        health = HealthMonitor(client, self._process.pid, setup.names, setup.traces.run)
        health.start()
        ended = threading.Event()
        try:
            while not is_over():
                if (status := self._process.poll()) is not None:
                    return Problem(f"tritonserver {describe_exit(status)}")
                if health.problem:
                    return Problem(health.problem)
                # What cannot be written now is a problem of the next start.
                with contextlib.suppress(OSError, ConfigurationError):
                    setup.folder.restore()
                given_up = health.take_failed() | self.failed
                self.failed = {}
                if reloads is not None:
                    reloads.reload(given_up, ended)
                elif given_up:
                    what = "; ".join(f"{name}: {reason}" for name, reason in given_up.items())
                    return Problem(what, is_final=True)
                time.sleep(_POLL_SECONDS)
        finally:
            ended.set()
            health.stop()
        return None

    def drain(self, seconds: float, is_over: Callable[[], bool], *, unloads: bool) -> int:
        """Refuse new requests and wait for the running ones; return how many took longer.

        With `unloads` workers stop too; otherwise the next server may adopt them.
        """
        endpoints = find_endpoints(self._process.pid, self._setup.traces.run)
        if not endpoints:
            # They were removed: nobody can be asked. Front ends resume what is cut now.
            return 0
        draining = Draining(endpoints, seconds)
        while not draining.is_over and not is_over() and self._process.poll() is None:
            time.sleep(_POLL_SECONDS)
        if unloads:
            self._unload(is_over)
        return draining.cut

    def _unload(self, is_over: Callable[[], bool]) -> None:
        # Not sooner: of a model that is being unloaded Triton says that it does not exist.
        stubs = stubs_of(self._process.pid)
        for name in self._setup.names:
            # Triton waits seconds for a stub that is dead.
            if name in stubs:
                self.client.unload(name)
        # A worker that `stop` stops is started again by its stub, unless that has stopped. A
        # stopping Triton looks only once a second whether its models are gone.
        end = time.monotonic() + 2 * EXIT_SECONDS
        while self._process.poll() is None and self._setup.traces.stubs():
            if is_over() or time.monotonic() > end:
                break
            time.sleep(_POLL_SECONDS / 2)

    def stop(self, is_urgent: Callable[[], bool], *, gently: bool = True) -> int:
        """End the server, its stubs and workers, and remove their shared memory.

        Requests that still run get an error: their workers are told to stop first. A server in
        problem is not waited for, and none when it `is_urgent`; what the next one may take over of
        its workers stays. Returns the exit status a shell should see.
        """
        traces = self._setup.traces
        left = [] if gently else traces.survivors()
        family = [each for each in traces.processes() if each not in left]
        for worker in traces.workers():
            if worker not in left:
                with contextlib.suppress(psutil.Error):
                    worker.terminate()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM if gently else signal.SIGKILL)
        is_cut = not self._wait_for_end(is_urgent)
        # A stub takes seconds to notice that its server is dead, and its clients wait meanwhile.
        if gently:
            # Who asked for the end finds no zombie either.
            kill(traces.stubs() if is_cut else [])
            _, alive = psutil.wait_procs(family, timeout=EXIT_SECONDS)
        else:
            send_kill(traces.stubs())
            alive = wait_for_ends(family, EXIT_SECONDS)
        kill(alive)
        traces.names.remove()
        for reservation in self._planned:
            reservation.close()
        status = self._process.poll()
        # A server that was told to end may say 1 because a client kept a connection open.
        return 0 if is_cut or status in (0, 1, -signal.SIGTERM) else 1

    def _wait_for_end(self, is_urgent: Callable[[], bool]) -> bool:
        """Wait until the server has exited, or kill it; return whether it exited by itself."""
        wait_until(lambda: self._process.poll() is not None or is_urgent(), 2 * EXIT_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Long enough for the errors that running requests get.
            self._process.wait(_URGENT_SECONDS if is_urgent() else 0)
            return True
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)
        return False


def _start(setup: ServerSetup) -> subprocess.Popen[bytes]:
    """Start the server, with its key where only its own user can read it; in the main thread."""
    real = setup.argv(setup.restriction)
    argv = setup.argv(replace(setup.restriction, key=REDACTED))
    environment = setup.installation.environment(os.environ) | {
        RUN_DIR_VARIABLE: str(setup.traces.run),
        **dict(zip(KEY_VARIABLES, setup.restriction.arguments(), strict=False)),
    }
    options = log_options(setup.log)
    # As long as the server or a stub lives, nobody else may remove their memory.
    options["pass_fds"] = (setup.traces.names.lock,)
    keys = (argument for argument in argv if argument not in real)
    # None, where every API is open.
    private = dict(zip(KEY_VARIABLES, keys, strict=False))
    prepare = partial(_prepare, os.getpid())
    try:
        return start_privately(argv, private, environment, prepare, **options)
    except OSError as error:
        text = "all users of this machine may read the key of Triton's restricted APIs"
        say(f"{text}: it is in the server's command line ({error})", "WARNING")
        return subprocess.Popen(  # noqa: S603
            real,
            env=environment,
            preexec_fn=prepare,  # noqa: PLW1509  as in private_arguments.py
            **options,
        )


def _prepare(parent: int) -> None:
    end_with(parent)
    enforce_umask()
