"""Pauses between restarts, and the reload of models whose workers were all given up."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.printable import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.supervisor.triton_http import TritonHttp

_LONGEST: Final = 60.0
# What has gone well for so long starts afresh.
_FORGIVEN: Final = 600.0
_POLL_SECONDS: Final = 0.2


class Backoff:
    """Pauses that grow with each failure: 0, 1, 2, 4 … 60 s."""

    def __init__(self) -> None:
        self._failures = 0
        self._last = 0.0

    def pause(self) -> float:
        """Count a failure, and return how many seconds to wait."""
        now = time.monotonic()
        if now - self._last > _FORGIVEN:
            self._failures = 0
        self._last = now
        self._failures += 1
        return min(_LONGEST, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0


class ModelReloads:
    """Reloads models, with pauses that grow with each failure of a model.

    Args:
        client: may unload and load models, and waits for as long as a load takes.
    """

    def __init__(self, client: TritonHttp) -> None:
        self._client = client
        self._backoffs: dict[str, Backoff] = {}
        self._running: dict[str, threading.Thread] = {}

    def reload(self, given_up: Mapping[str, str], is_over: threading.Event) -> None:
        """Reload models in the background, except those that are being reloaded.

        Args:
            given_up: the name of each model, and why it needs that.
            is_over: ends it.
        """
        for name, why in given_up.items():
            running = self._running.get(name)
            if running is not None and running.is_alive():
                continue
            thread = threading.Thread(
                target=self._reload, args=(name, why, is_over), name=f"reload-{name}", daemon=True
            )
            self._running[name] = thread
            thread.start()

    def _reload(self, name: str, why: str, is_over: threading.Event) -> None:
        backoff = self._backoffs.setdefault(name, Backoff())
        while not is_over.is_set():
            pause = backoff.pause()
            say(f"{name}: {why}; it is loaded again in {pause:.0f} s")
            if is_over.wait(pause):
                return
            self._client.unload(name)
            while self._client.is_ready(name):
                if is_over.wait(_POLL_SECONDS):
                    return
            if self._client.load(name):
                say(f"{name}: ready again")
                return
            why = "it could not be loaded; the log says why"
