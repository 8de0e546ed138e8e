"""Keep a server up until the user stops it, whatever clients send and whatever dies."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Final

from lmi_backend.errors import LmiError, UnavailableError
from lmi_backend.printable import log, say
from lmi_backend.supervisor.reloading import Backoff, ModelReloads
from lmi_backend.supervisor.server import RunningServer, ServerSetup, Trouble
from lmi_backend.supervisor.stop import Stop
from lmi_backend.supervisor.triton_http import TritonHttp

_POLL_SECONDS: Final = 0.2
_PROGRESS_SECONDS: Final = 5.0
# 24.10 frees what a stub is still to read if the stub gets no processor for a second of its start:
# the stub dies of it, and the server aborts.
_FIRST_STARTS: Final = 3
"""How often a server is started that a signal ends each time before it has served."""


class Supervisor:
    """Starts a server, and starts it again when it is in trouble.

    Args:
        setup: what it is started with.
        stop: the user's signals.
        drain_seconds: time that running requests have to end.
        exits_when_given_up: whether the server ends when all workers of a model are given up;
            otherwise the model is loaded again.
    """

    def __init__(
        self,
        setup: ServerSetup,
        stop: Stop,
        *,
        drain_seconds: float,
        exits_when_given_up: bool,
    ) -> None:
        self._setup, self._stop, self._drain_seconds = setup, stop, drain_seconds
        self._has_served = False
        self._well_seconds = 0.0
        self._starts = 0
        # A model may take long to load.
        client = TritonHttp(setup.ports.url, timeout=None, headers=setup.restriction.headers)
        self._reloads = None if exits_when_given_up else ModelReloads(client)

    def run(self, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> int:
        """Serve until the user stops it; return the exit status.

        Args:
            on_ready: called once, when all models take requests for the first time.
            on_stop: called once, before running requests are waited for.

        Raises:
            UnavailableError: the server did not start, or is not to be started again.
        """
        backoff = Backoff()
        while True:
            self._well_seconds = 0.0
            trouble, status = self._serve_guarded(on_ready, on_stop)
            if trouble is None or self._stop.is_asked:
                return status
            if trouble.is_final:
                raise UnavailableError(trouble.text)
            pause = backoff.pause(self._well_seconds)
            say(f"{trouble.text}: the server is started again in {pause:.0f} s")
            if self._stop.wait(pause):
                return 0

    def _serve_guarded(
        self, on_ready: Callable[[], None], on_stop: Callable[[], None]
    ) -> tuple[Trouble | None, int]:
        """Do as `_serve`; a fault of our own costs a server that has served no more than a restart.

        Raises:
            UnavailableError: as `run`.
        """
        try:
            return self._serve(on_ready, on_stop)
        except LmiError:
            raise
        except Exception as error:
            if not self._has_served:
                raise
            log(traceback.format_exc())
            return Trouble(f"lmi-backend failed: {error!r}"), 1

    def _serve(
        self, on_ready: Callable[[], None], on_stop: Callable[[], None]
    ) -> tuple[Trouble | None, int]:
        """Run one server until its end; return why it ended, if not by the user, and its status."""
        self._starts += 1
        try:
            server = RunningServer(self._setup)
        except OSError as error:
            if not self._has_served:
                raise
            return Trouble(f"tritonserver cannot be started: {error}"), 1
        trouble: Trouble | None = None
        try:
            trouble = self._wait_until_ready(server)
            if trouble is None and not self._stop.is_asked:
                trouble = self._watch(server, on_ready)
                if trouble is None:
                    on_stop()
                self._drain(server, trouble)
        finally:
            status = server.stop(self._is_urgent, gently=trouble is None)
        return trouble, status

    def _watch(self, server: RunningServer, on_ready: Callable[[], None]) -> Trouble | None:
        """Let a server serve until something is wrong, or until the user stops it."""
        began = time.monotonic()
        server.widen_buffers()
        if not self._has_served:
            self._has_served = True
            on_ready()
        try:
            return server.wait_for_trouble(self._is_asked, reloads=self._reloads)
        finally:
            self._well_seconds = time.monotonic() - began

    def _drain(self, server: RunningServer, trouble: Trouble | None) -> None:
        if trouble is None:
            say("stopping: waiting for running requests; Ctrl-C again to stop at once")
        else:
            say(f"{trouble.text}: waiting for running requests")
        is_over = self._is_urgent if trouble is None else self._is_asked
        if cut := server.drain(self._drain_seconds, is_over):
            say(f"{cut} requests took longer than --drain-timeout and got an error")

    def _is_asked(self) -> bool:
        return self._stop.is_asked

    def _is_urgent(self) -> bool:
        return self._stop.is_urgent

    def _wait_until_ready(self, server: RunningServer) -> Trouble | None:
        """Wait for every model, or until the user stops it; return what goes wrong meanwhile.

        Raises:
            UnavailableError: the server ended, and neither a client, nor a machine that it has
                served on before, nor a crash can be the cause: what it was told to serve is.
        """
        client = TritonHttp(self._setup.ports.url, timeout=5.0)
        began = said = time.monotonic()
        has_listened = False
        names, url = self._setup.names, self._setup.ports.url
        left = list(names)
        while left:
            is_ready = client.is_ready(left[0])
            has_listened = has_listened or is_ready is not None
            if is_ready:
                del left[0]
                continue
            if self._stop.wait(_POLL_SECONDS):
                return None
            try:
                server.check()
            except UnavailableError as error:
                is_accident = server.has_crashed and self._starts < _FIRST_STARTS
                if not (self._has_served or has_listened or is_accident):
                    raise
                return Trouble(str(error))
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"starting {left[0]}: {said - began:.0f} s")
        say(f"ready after {time.monotonic() - began:.0f} s: {', '.join(names)} at {url}")
        return None
