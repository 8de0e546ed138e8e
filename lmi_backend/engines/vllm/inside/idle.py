"""Fast paths that are on and take nothing: so that a slow way is never without a name.

vLLM may no longer call a path that does its work. Or everything that comes has a member that the
path does not know, so that vLLM must look at it. The answers are right then, and slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lmi_backend.engines.vllm.inside import fast_paths

ONE_THREAD: Final = "outputs that come in the thread of the event loop"
_MANY: Final = 64
"""Requests in a row that pass by a path which has taken some, before it is turned off."""
_SHOWN: Final = 200

_used: set[str] = set()


def note_use(name: str) -> None:
    """Note that vLLM has called what a path has put in a place of its own."""
    _used.add(name)


def forget_use(name: str) -> None:
    """Forget that it was called, by a trial."""
    _used.discard(name)


def turn_off_unused(*names: str) -> None:
    """Turn off paths that were not called for an answer which had to pass them."""
    for name in names:
        if name not in _used:
            fast_paths.turn_off(
                name, "to be called for each such answer", "one was made, and it was not called"
            )


class PassedBy:
    """Looks at the requests that pass by a path, for members that it does not know.

    A known member may be the choice of one client. An unknown one is of a newer vLLM, which may
    have it in each request.

    Args:
        name: the path.
        expected: what it takes.
    """

    def __init__(self, name: str, expected: str) -> None:
        self._name, self._expected = name, expected
        self._left = self._most = 1

    def took(self) -> None:
        """Note a request that the path took something from."""
        self._left = self._most = _MANY

    def passed(self, unknown: Mapping[str, object]) -> None:
        """Note one that it took nothing from.

        Args:
            unknown: the members that it does not know, each with its value.
        """
        if not unknown:
            return
        self._left -= 1
        if self._left <= 0:
            shown = ", ".join(f"{name}: {value!r}" for name, value in sorted(unknown.items()))
            came = f"nothing of it in {self._most} in a row, which also have {shown[:_SHOWN]}"
            fast_paths.turn_off(self._name, self._expected, came)
