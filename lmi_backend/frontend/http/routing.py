"""From a request's method and path to what answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Match, Route

from lmi_backend.clients.spec import ANYBODY, PROBE, Who
from lmi_backend.frontend.http.target import SERVER

if TYPE_CHECKING:
    from lmi_backend.clients.spec import ClientSpec, Path
    from lmi_backend.frontend.http.exchange import Exchange

_SERVER: Final = SERVER.decode()


@dataclass(frozen=True)
class Responder:
    """What answers a path, and whose path it is."""

    answer: Callable[[Exchange], Awaitable[None]]
    client: ClientSpec
    who: Who = "client"
    resumed: Path | None = None
    """The path, if a client may reconnect there for the rest of a stream."""

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

    def __init__(self, rows: Iterable[tuple[Route, Responder]]) -> None:
        self._exact: dict[str, list[tuple[Route, Responder]]] = {}
        self._others: list[tuple[Route, Responder]] = []
        self._methods: set[str] = set()
        for row in rows:
            path = row[0].path
            self._methods |= row[0].methods or set()
            (self._others if "{" in path else self._exact.setdefault(path, [])).append(row)

    def find(
        self, scope: MutableMapping[str, Any]
    ) -> tuple[Responder | None, dict[str, Any], set[str]]:
        """Return what answers a request, and what its path names.

        Nothing answers where the third is not empty: these methods do. A path that is only known
        without the slashes at its end loses them in the scope. The server as a whole has the
        methods of all paths.
        """
        path: str = scope["path"]
        if path == _SERVER:
            return None, {}, self._methods
        if path.endswith("/") and (short := path.rstrip("/")):
            found = self._find({**scope, "path": short})
            if found[0] or found[2]:
                scope["path"] = short
                return found
        return self._find(scope)

    def _find(
        self, scope: MutableMapping[str, Any]
    ) -> tuple[Responder | None, dict[str, Any], set[str]]:
        allowed: set[str] = set()
        for row, service in self._exact.get(scope["path"], ()):
            methods = row.methods or set()
            if scope["method"] in methods:
                return service, {}, set()
            allowed |= methods
        for row, service in self._others:
            match, found = row.matches(scope)
            if match is Match.FULL:
                return service, dict(found), set()
            if match is Match.PARTIAL:
                allowed |= row.methods or set()
        return None, {}, allowed

    def client_of(self, scope: MutableMapping[str, Any]) -> ClientSpec | None:
        """Return whose path it is, for any method; None for no such path."""
        rows = self._rows(scope)
        return next((s.client for row, s in rows if row.matches(scope)[0] != Match.NONE), None)

    def _rows(self, scope: MutableMapping[str, Any]) -> Iterable[tuple[Route, Responder]]:
        return (*self._exact.get(scope["path"], ()), *self._others)


async def _unused(_: Any) -> None:
    """Stand where a route wants an endpoint; the front end answers itself."""
