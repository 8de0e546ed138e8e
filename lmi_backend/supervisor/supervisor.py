"""Keep a server up until the user stops it, through crashes and wrong requests."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from lmi_backend.endpoint.loading import read_loading
from lmi_backend.errors import LmiError, UnavailableError
from lmi_backend.machine import machine_problem
from lmi_backend.pool.load_failure import LoadFailure
from lmi_backend.printable import log, say
from lmi_backend.supervisor.reloading import Backoff, ModelReloads
from lmi_backend.supervisor.server import Problem, RunningServer, ServerSetup
from lmi_backend.supervisor.stop import StopSignals

_POLL_SECONDS: Final = 0.2
_READY: Final = "READY"
_FAILED: Final = "UNAVAILABLE"
"""Triton's state of a model that it has tried to load, with the reason."""
_PROGRESS_SECONDS: Final = 5.0
_STARVED: Final = "is not healthy"
"""Triton's text for a stub that got no processor for a second of its start."""
# 24.10 frees what a stub is still to read if the stub gets no processor for a second of its start:
# the stub dies of it, and the server aborts.
_FIRST_STARTS: Final = 3
"""How often a server is started that has such an accident each time before it has served."""


class Supervisor:
    """Starts a server, and starts it again when it has a problem.

    With `exits_when_given_up` it stops when all workers of a model failed permanently; otherwise
    the model is loaded again.
    """

    def __init__(
        self,
        setup: ServerSetup,
        stop: StopSignals,
        *,
        drain_seconds: float,
        exits_when_given_up: bool,
    ) -> None:
        self._setup, self._stop, self._drain_seconds = setup, stop, drain_seconds
        self._is_requested, self._is_urgent = lambda: stop.is_requested, lambda: stop.is_urgent
        self._has_served = False
        self._well_seconds = 0.0
        self._starts = 0
        # A model may take long to load.
        self._reloads = None if exits_when_given_up else ModelReloads(setup.client(None))

    def run(self, on_ready: Callable[[Collection[str]], None], on_stop: Callable[[], None]) -> int:
        """Serve until the user stops it; return the exit status.

        Args:
            on_ready: called once, when models take requests for the first time, with the names of
                those that do not.
            on_stop: called once, before running requests are waited for.

        Raises:
            UnavailableError: the server did not start, or is not to be started again.
        """
        self._on_ready, self._on_stop = on_ready, on_stop
        backoff = Backoff()
        while True:
            self._well_seconds = 0.0
            try:
                problem, status = self._serve()
            except LmiError:
                raise
            except Exception as error:
                # A fault of our own costs a server that has served no more than a restart.
                if not self._has_served:
                    raise
                problem, status = _fault(error), 1
            if problem is None or self._stop.is_requested:
                return status
            if problem.is_final:
                raise UnavailableError(problem.text)
            pause = backoff.pause(self._well_seconds)
            say(f"{problem.text}: the server is started again in {pause:.0f} s", "ERROR")
            if self._stop.wait(pause):
                return 0

    def _serve(self) -> tuple[Problem | None, int]:
        """Run one server until it exits; return the cause, if not the user, and the status."""
        self._starts += 1
        server = RunningServer(self._setup)
        problem: Problem | None = None
        try:
            problem = self._wait_until_ready(server)
            if problem is None:
                # Models that are ready have clients while others are still loaded.
                if has_all := not self._stop.is_requested:
                    problem = self._watch(server)
                if problem is None:
                    self._on_stop()
                self._drain(server, problem, unloads=has_all and problem is None)
        finally:
            status = server.stop(self._is_urgent, gently=problem is None)
        return problem, status

    def _watch(self, server: RunningServer) -> Problem | None:
        began = time.monotonic()
        server.widen_buffers()
        if not self._has_served:
            self._has_served = True
            self._on_ready(server.failed.keys())
        try:
            return server.wait_for_problem(self._is_requested, reloads=self._reloads)
        finally:
            self._well_seconds = time.monotonic() - began

    def _drain(self, server: RunningServer, problem: Problem | None, *, unloads: bool) -> None:
        if problem is None:
            say("stopping: waiting for running requests; Ctrl-C again to stop at once")
        else:
            say(f"{problem.text}: waiting for running requests", "ERROR")
        is_over = self._is_urgent if problem is None else self._is_requested
        if cut := server.drain(self._drain_seconds, is_over, unloads=unloads):
            say(f"{cut} requests took longer than --drain-timeout and got an error", "WARNING")

    def _wait_until_ready(self, server: RunningServer) -> Problem | None:
        """Wait until every model is ready or has failed, or until the user stops it.

        Returns what goes wrong meanwhile. Models that failed are left in `server.failed`.

        Raises:
            UnavailableError: the server exited, or none of its models can be loaded. Its arguments
                are the cause: no client can be, nor a machine that it has served on before, nor a
                crash.
        """
        began = last_report = time.monotonic()
        has_listened = False
        while True:
            # Its port opens when it has tried to load them all.
            states = server.client.states()
            has_listened = has_listened or states is not None
            left = [name for name in self._setup.names if _is_open(states, name)]
            if not left:
                break
            if self._stop.wait(_POLL_SECONDS):
                say(f"stopping: {', '.join(left)} did not finish loading")
                return None
            try:
                server.check()
            except UnavailableError as error:
                is_accident = server.has_crashed and self._starts < _FIRST_STARTS
                if not (self._has_served or has_listened or is_accident):
                    raise
                return Problem(str(error))
            if time.monotonic() - last_report > _PROGRESS_SECONDS:
                last_report = time.monotonic()
                self._say_progress(left, last_report - began)
        rows = [(name, *(states or {})[name]) for name in self._setup.names]
        ready = [name for name, state, _ in rows if state == _READY]
        failures = [LoadFailure.of(name, why) for name, state, why in rows if state == _FAILED]
        if failures:
            if problem := self._judge(failures, ready):
                return problem
            server.failed = {each.model: each.brief for each in failures}
        say(f"ready after {time.monotonic() - began:.0f} s: {', '.join(ready)}")
        return None

    def _say_progress(self, left: Sequence[str], seconds: float) -> None:
        progress = read_loading(self._setup.traces.run)
        for name in [name for name in left if name in progress] or left[:1]:
            # One clock for all: that of this start.
            text = progress[name].text if name in progress else "starting"
            say(f"{name}: {text}; {seconds:.0f} s so far")

    def _judge(self, failures: Sequence[LoadFailure], ready: Sequence[str]) -> Problem | None:
        """Return why a server that cannot load some models is started again; None if it serves.

        Raises:
            UnavailableError: it has never served, and what it cannot do without has failed.
        """
        # Without a second try, the server is one that has all.
        required = self._setup.required if self._reloads else frozenset(self._setup.names)
        # Alias models have no workers of their own.
        own = [each.model for each in self._setup.allocations] or self._setup.names
        if {*ready} & {*own} and not required & {each.model for each in failures}:
            return None
        is_accident = any(_STARVED in each.cause for each in failures)
        if self._has_served or (is_accident and self._starts < _FIRST_STARTS):
            return Problem("; ".join(f"{each.model}: {each.brief}" for each in failures))
        raise UnavailableError("\n".join(map(str, failures)))


def _is_open(states: Mapping[str, tuple[str, str]] | None, name: str) -> bool:
    """Tell whether what becomes of a model is not known yet."""
    state, reason = (states or {}).get(name, ("", ""))
    return state != _READY and not (state == _FAILED and reason)


def _fault(error: Exception) -> Problem:
    if problem := machine_problem(error):
        return Problem(problem)
    log(traceback.format_exc())
    return Problem(f"lmi-backend failed: {error!r}")
