"""From a request's method and path to what answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.clients.registry import parameters_in
from lmi_backend.clients.spec import ANYBODY, PROBE, Who
from lmi_backend.frontend.http.protocol import SERVER

if TYPE_CHECKING:
    from lmi_backend.clients.spec import ClientSpec, Path
    from lmi_backend.frontend.http.exchange import Exchange

_SERVER: Final = SERVER.decode()
_VERSION: Final = "/v1"
_PATH_LETTERS: Final = 200
_MOST_PARTS: Final = 8
"""Of a path, at whose beginning a base URL may be wrong."""


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
        return self.who not in (PROBE, ANYBODY)


class Near(NamedTuple):
    """A path that is served, near one that is not."""

    advice: str
    """Which path, and what to do to the base URL."""
    client: ClientSpec
    """Whose path it is."""


class Route(NamedTuple):
    """A row's path, with names in braces, and its methods."""

    path: str
    methods: frozenset[str]


def route(path: str, methods: str) -> Route:
    """Return a row's path and its methods, which have blanks between them."""
    return Route(path, frozenset(methods.replace("GET", "GET HEAD").split()))


class Routes:
    """All rows; those without a name in their path are looked up, the others tried in turn.

    Probes and scrapers come twenty times a second, for paths that stand late among the rows.
    """

    def __init__(self, rows: Iterable[tuple[Route, Responder]]) -> None:
        self.exact: dict[str, list[tuple[Route, Responder]]] = {}
        self.others: list[tuple[Route, Responder]] = []
        self._methods: set[str] = set()
        for row in rows:
            path = row[0].path
            self._methods |= row[0].methods
            (self.others if "{" in path else self.exact.setdefault(path, [])).append(row)

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
            responder = self._find({**scope, "path": short})
            if responder[0] or responder[2]:
                scope["path"] = short
                return responder
        return self._find(scope)

    def _find(
        self, scope: MutableMapping[str, Any]
    ) -> tuple[Responder | None, dict[str, Any], set[str]]:
        allowed: set[str] = set()
        for row, service in self.exact.get(scope["path"], ()):
            if scope["method"] in row.methods:
                return service, {}, set()
            allowed |= row.methods
        for row, service in self.others:
            if (parameters := parameters_in(row.path, scope["path"])) is not None:
                if scope["method"] in row.methods:
                    return service, {"path_params": parameters}, set()
                allowed |= row.methods
        return None, {}, allowed

    def client_of(self, path: str) -> ClientSpec | None:
        """Return whose path it is, for any method; None for no such path."""
        rows = (*self.exact.get(path, ()), *self.others)
        fits = (each.client for row, each in rows if parameters_in(row.path, path) is not None)
        return next(fits, None)

    def near(self, path: str) -> Near | None:
        """Return what a client means whose base URL is wrong; None if that cannot be told.

        Clients add the path's end to a base URL: with `/v1`, without it, or with a proxy's prefix.
        """
        parts = path.rstrip("/").split("/")[1:]
        for first in range(min(len(parts), _MOST_PARTS)):
            end = "/" + "/".join(parts[first:])
            wrong = "/" + "/".join(parts[:first]) if first else ""
            for meant in (f"{_VERSION}{end}", end):
                if meant != path and (client := self.client_of(meant)):
                    return Near(_advice(meant, wrong, is_short=meant != end), client)
        return None


def _advice(path: str, wrong: str, *, is_short: bool) -> str:
    given, remedy = repr(wrong[:_PATH_LETTERS]), f"add {_VERSION} to"
    if wrong:
        remedy = f"write {_VERSION} in place of {given} in" if is_short else f"remove {given} from"
    return f"did you mean {path[:_PATH_LETTERS]!r}? Then {remedy} the client's base URL"
