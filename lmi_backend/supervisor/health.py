"""Detect what Triton does not: a stub that died or hangs, and a server that does not answer.

Triton 24.10 continues to call a model READY whose stub has died. The running requests of that stub
never finish, not even when the model is loaded again: only an exit of the server finishes them.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from typing import TYPE_CHECKING

import psutil

from lmi_backend.endpoint.control import find_endpoints, is_endpoint_of, request_health
from lmi_backend.errors import UnavailableError
from lmi_backend.printable import log, say
from lmi_backend.supervisor.processes import StubStarts, lives, stubs_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lmi_backend.supervisor.triton_http import TritonHttp

_LOOK_SECONDS = 1.0
# Clients wait until the model of a stub that died is back.
_SOON_SECONDS = 0.2
_ANSWER_SECONDS = 2.0
# A loaded machine may be late; one that has been for half a minute is not coming back.
_LOOKS = 10
# A model that is loaded once more makes its socket anew.
_SOCKET_LOOKS = 3
# All processes of the machine are read for it.
_LOOKS_PER_SEARCH = 5


class HealthMonitor(threading.Thread):
    """Checks a server each second, and at once when a stub has exited.

    `problem` has the problem, once there is one. The client may use the index of models.
    """

    def __init__(self, client: TritonHttp, server: int, names: Iterable[str], base: Path) -> None:
        super().__init__(name="health", daemon=True)
        self._client = client
        self._server, self._base = server, base
        self._starts = StubStarts(server)
        self._names = set(names)
        self._stopped = threading.Event()
        self._misses: dict[str, int] = {}
        self.stubs: dict[str, psutil.Process] = {}
        self._given_up: dict[str, str] = {}
        self._looks = 0
        self._fault = ""
        # Alias models have no endpoint.
        self._seen: set[str] = set()
        self.problem = ""

    def stop(self) -> None:
        self._stopped.set()

    def take_failed(self) -> dict[str, str]:
        """Return the models whose workers all failed for good since the last call, with reasons."""
        taken, self._given_up = self._given_up, {}
        return taken

    def run(self) -> None:
        while not self.problem and not self._rest():
            try:
                self.problem = self._check()
            except Exception as error:  # noqa: BLE001  a server that nobody checks is given up
                say(f"a look at the server failed: {error!r}", "WARNING")
                # Once: a fault that stays would be a traceback a second.
                if (fault := repr(error)) != self._fault:
                    self._fault = fault
                    log(traceback.format_exc())

    def _rest(self) -> bool:
        """Wait until the next look; return whether none is wanted."""
        is_soon = any(name in self._misses for name in self._names)
        end = time.monotonic() + (_SOON_SECONDS if is_soon else _LOOK_SECONDS)
        alive = list(filter(lives, self.stubs.values()))
        while all(map(lives, alive)) and time.monotonic() < end:
            if self._stopped.wait(_SOON_SECONDS):
                return True
        return self._stopped.is_set()

    def _check(self) -> str:
        try:
            index = self._client.index()
        except UnavailableError:
            if not self._count("", is_well=False, most=_LOOKS):
                return ""
            # It could neither drain nor stop.
            with contextlib.suppress(psutil.Error):
                psutil.Process(self._server).kill()
            return "tritonserver does not answer"
        self._misses.pop("", None)
        ready = self._names & {each["name"] for each in index if each.get("state") == "READY"}
        for name in self._names - ready:
            self._misses.pop(name, None)
        for name in ready:
            # Twice: it may be on its way out or in.
            if self._count(name, is_well=self._has_stub(name), most=2):
                return f"the stub of {name} died"
        self._looks += 1
        # A model that is loaded again while it serves is not said to be loading.
        is_loading = any(each.get("state") == "LOADING" for each in index)
        is_due = is_loading or self._looks % _LOOKS_PER_SEARCH == 0
        if is_due and self._starts.has_dead_one():
            return "a model's stub died while it was started"
        return self._endpoint_problem(ready)

    def _endpoint_problem(self, ready: set[str]) -> str:
        endpoints = find_endpoints(self._server, self._base)
        if lost := self._lost_endpoint(ready, endpoints):
            return f"the socket of {lost} was removed"
        for endpoint in endpoints:
            owner = next((name for name in ready if is_endpoint_of(endpoint, name)), "")
            if not owner:
                continue
            health = request_health(endpoint, _ANSWER_SECONDS)
            if health is not None and health.is_given_up:
                self._given_up[owner] = health.problem
            if self._count(str(endpoint), is_well=health is not None, most=_LOOKS):
                # Nor could it drain.
                with contextlib.suppress(psutil.Error, KeyError):
                    self.stubs[owner].kill()
                return f"the stub of {owner} does not answer"
        return ""

    def _lost_endpoint(self, ready: set[str], endpoints: Iterable[Path]) -> str:
        """Return a model whose endpoint was removed under it; nobody reaches its stub any more."""
        there = {each for each in ready for path in endpoints if is_endpoint_of(path, each)}
        gone = self._seen - there
        self._seen = (self._seen & ready) | there
        lost = (
            name
            for name in ready
            if self._count(f"socket {name}", is_well=name not in gone, most=_SOCKET_LOOKS)
        )
        return next(lost, "")

    def _has_stub(self, name: str) -> bool:
        """Tell whether a model's stub lives; all processes are looked through only if not."""
        if not lives(self.stubs.get(name)):
            self.stubs = stubs_of(self._server)
        return lives(self.stubs.get(name))

    def _count(self, what: str, *, is_well: bool, most: int) -> bool:
        """Count how often something was not well; return whether that is enough."""
        if is_well:
            self._misses.pop(what, None)
            return False
        self._misses[what] = self._misses.get(what, 0) + 1
        return self._misses[what] >= most
