"""Pauses between restarts, and the reload of models whose workers all failed permanently."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from lmi_backend.pool.load_failure import LoadFailure
from lmi_backend.printable import say
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from lmi_backend.supervisor.triton_http import TritonHttp

_LONGEST: Final = 60.0
# Failures so long ago are not counted.
_FORGIVEN: Final = 600.0
# A pause after a crash that a request causes keeps everybody else out. So what served for so long
# is started at once, and what served at all soon.
_WELL_SECONDS: Final = 10.0
_SOON: Final = 5.0
_POLL_SECONDS: Final = 0.2


class Backoff:
    """Pauses that grow with each failure: 0, 1, 2, 4 … 60 s; 5 s for what has served."""

    def __init__(self) -> None:
        self._failures = 0
        self._last = 0.0

    def pause(self, well_seconds: float = 0.0) -> float:
        """Count a failure of what had served for some seconds; return how many seconds to wait."""
        now = time.monotonic()
        if now - self._last > _FORGIVEN or well_seconds >= _WELL_SECONDS:
            self._failures = 0
        self._last = now
        self._failures += 1
        longest = _SOON if well_seconds else _LONGEST
        return min(longest, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0


class ModelReloads:
    """Reloads models, with pauses that grow with each failure of a model.

    Its client waits for as long as a load takes.
    """

    def __init__(self, client: TritonHttp) -> None:
        self._client = client
        self._backoffs: dict[str, Backoff] = {}
        self._running: dict[str, threading.Thread] = {}

    def reload(self, given_up: Mapping[str, str], is_over: threading.Event) -> None:
        """Reload models in the background, by name and reason, unless they are being reloaded."""
        for name, reason in given_up.items():
            running = self._running.get(name)
            if running is not None and running.is_alive():
                continue
            thread = guarded_thread(f"reload-{name}", partial(self._reload, name, reason, is_over))
            self._running[name] = thread
            thread.start()

    def _reload(self, name: str, cause: str, is_over: threading.Event) -> None:
        backoff = self._backoffs.setdefault(name, Backoff())
        logged = ""
        while not is_over.is_set():
            pause = backoff.pause()
            if cause != logged:
                say(f"{name}: {cause}; it is loaded again, in {pause:.0f} s at first", "WARNING")
                logged = cause
            if is_over.wait(pause):
                return
            self._client.unload(name)
            while self._client.is_well(f"/v2/models/{name}/ready"):
                if is_over.wait(_POLL_SECONDS):
                    return
            if self._client.load(name):
                say(f"{name}: ready again")
                return
            _, reason = (self._client.states() or {}).get(name, ("", ""))
            cause = LoadFailure.of(name, reason).brief if reason else "it could not be loaded"
