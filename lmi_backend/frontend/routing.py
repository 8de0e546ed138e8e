"""From a request's method and path to what answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.routing import Match, Route

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.failures import Failure

Who = Literal["probe", "anybody", "client", "operator"]
"""Whose key a path needs, where keys are needed."""
PROBE: Final[Who] = "probe"
"""No key, and any name of the server: load balancers have their own."""
ANYBODY: Final[Who] = "anybody"
OPERATOR: Final[Who] = "operator"


@dataclass(frozen=True)
class Service:
    """What answers a path, and in which form it fails."""

    answer: Callable[[Exchange], Awaitable[None]]
    failure_of: Callable[[LmiError], Failure]
    who: Who = "client"

    @property
    def needs_key(self) -> bool:
        """Whether it needs one where keys are needed."""
        return self.who not in (PROBE, ANYBODY)


def route(path: str, methods: str) -> Route:
    """Return a row's path, with names in braces, and its methods, with blanks between."""
    return Route(path, _unused, methods=methods.split())


class Routes:
    """All rows; those without a name in their path are looked up, the others tried in turn.

    Probes and scrapers come twenty times a second, for paths that stand late among the rows.
    """

    def __init__(self, rows: Iterable[tuple[Route, Service]]) -> None:
        self._exact: dict[str, list[tuple[Route, Service]]] = {}
        self._others: list[tuple[Route, Service]] = []
        for row in rows:
            path = row[0].path
            (self._others if "{" in path else self._exact.setdefault(path, [])).append(row)

    def find(
        self, scope: MutableMapping[str, Any]
    ) -> tuple[Service | None, dict[str, Any], set[str]]:
        """Return what answers a request, and what its path names.

        Nothing answers where the third is not empty: these methods do.
        """
        allowed: set[str] = set()
        for row, service in self._rows(scope):
            match, found = row.matches(scope)
            if match is Match.FULL:
                return service, dict(found), set()
            if match is Match.PARTIAL:
                allowed |= row.methods or set()
        return None, {}, allowed

    def failure_of(self, scope: MutableMapping[str, Any]) -> Callable[[LmiError], Failure] | None:
        """Return how errors of a path are written, whatever the method; None for no such path."""
        rows = self._rows(scope)
        return next((s.failure_of for row, s in rows if row.matches(scope)[0] != Match.NONE), None)

    def _rows(self, scope: MutableMapping[str, Any]) -> Iterable[tuple[Route, Service]]:
        return (*self._exact.get(scope["path"], ()), *self._others)


async def _unused(_: Any) -> None:
    """Stand where a route wants an endpoint; the front end answers itself."""
