"""Replay exchanges: send each one, judge the answer, keep what was seen and when it came."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lmi_backend.errors import ConfigurationError
from lmi_backend.migrate import kinds
from lmi_backend.migrate.kinds import Difference
from lmi_backend.migrate.records import RecordedAnswer, Request
from lmi_backend.migrate.texts import with_probabilities
from lmi_backend.printable import MIB, human_bytes

if TYPE_CHECKING:
    from lmi_backend.migrate.judge import Judge
    from lmi_backend.migrate.records import RecordedExchange


LARGEST: Final = 64 * MIB
"""Bytes of an answer."""


@dataclass(frozen=True)
class Target:
    url: str
    timeout: float = 300.0
    """Seconds that a read may take."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each request, over recorded ones of the same name."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_right = False
        if not is_right:
            raise ConfigurationError(f"{self.url}: is not an address; accepted: http://HOST:PORT")

    def send(self, request: Request) -> RecordedAnswer:
        """Return the answer to a request; its `error` says why there is no whole one.

        Nothing is sent twice. The connection is new, so no time-out of an idle one is in the way.
        """
        connection = self._connect()
        began = time.monotonic()
        try:
            connection.connect()
            began = time.monotonic()
            self._write(connection, request)
            return _read(connection.getresponse(), began)
        except (OSError, HTTPException, ValueError) as error:
            # The last one: a recorded header that HTTP cannot have.
            problem = str(error) or type(error).__name__
            return RecordedAnswer(None, {}, b"", (), time.monotonic() - began, problem)
        finally:
            connection.close()

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=self.timeout)

    def _write(self, connection: HTTPConnection, request: Request) -> None:
        path = urlsplit(self.url).path.rstrip("/") + request.path
        connection.putrequest(request.method, path, skip_accept_encoding=True)
        own = {name.lower(): value for name, value in self.headers.items()}
        for name, value in {**request.headers, **own}.items():
            connection.putheader(name, value.encode())
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            connection.putheader("content-length", str(len(request.body)))
        connection.endheaders(request.body or None)


def _read(response: HTTPResponse, began: float) -> RecordedAnswer:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        lower = name.lower()
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    parts, arrivals, size, error = [], [], 0, ""
    try:
        while part := response.read1(MIB):
            parts.append(part)
            arrivals.append(time.monotonic() - began)
            if (size := size + len(part)) > LARGEST:
                error = f"the answer is larger than {human_bytes(LARGEST)}"
                break
        else:
            if response.length:
                error = f"the answer was cut, {response.length} bytes before its end"
    except (OSError, HTTPException) as failure:
        error = f"the answer was cut: {failure or type(failure).__name__}"
    spent = time.monotonic() - began
    return RecordedAnswer(response.status, headers, b"".join(parts), tuple(arrivals), spent, error)


@dataclass(frozen=True)
class Times:
    """Seconds; None if they are not known."""

    first: float | None = None
    between: float | None = None
    total: float | None = None


MEASURES: Final = {"first": "first event", "between": "between events", "total": "total"}
SHARES: Final = (0.5, 0.9, 0.99)


def times_of(answer: RecordedAnswer | None) -> Times:
    if answer is None or answer.error:
        return Times()
    came = answer.arrivals
    gaps = [later - earlier for earlier, later in pairwise(came)]
    between = sum(gaps) / len(gaps) if gaps else None
    return Times(came[0] if came else None, between, answer.seconds)


def measured(times: Iterable[Times], measure: str) -> list[float]:
    values = (getattr(each, measure) for each in times)
    return sorted(value for value in values if value is not None)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered values are."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


MOST_AT_ONCE: Final = 256


@dataclass(frozen=True)
class Outcome:
    place: str
    client: str
    path: str
    differences: Sequence[Difference]
    was: Times
    now: Times
    is_judged: bool = True
    """False: there was nothing to judge the answer by."""


@dataclass(frozen=True)
class Replay:
    new: Target
    judge: Judge
    old: Target | None = None
    rate: float | None = None
    """Requests that start in a second; None: as many run at once as `at_once` says."""
    at_once: int = 1
    stop: threading.Event = field(default_factory=threading.Event)

    def differences(
        self, request: Request, was: RecordedAnswer, now: RecordedAnswer
    ) -> list[Difference]:
        """Return how two answers differ.

        The new server is sent the request of a diverged greedy text once more, and says how likely
        both continuations were.
        """
        changes = self.judge.differences(request, was, now)
        if not any(each.kind == kinds.GREEDY for each in changes):
            return changes
        probe = with_probabilities(request)
        if probe is None:
            return changes
        repeated = self.judge.differences(request, was, self.new.send(probe))
        ties = {each.place: each for each in repeated if each.kind == kinds.NEAR_TIE}
        likely = {each.place: each for each in repeated if each.kind == kinds.GREEDY} | ties
        return [
            likely.get(each.place, each) if each.kind == kinds.GREEDY else each for each in changes
        ]

    def one(self, exchange: RecordedExchange) -> Outcome:
        request = exchange.request
        was = self.old.send(request) if self.old else exchange.answer
        now = self.new.send(request)
        differences = self.differences(request, was, now) if was else []
        return Outcome(
            exchange.place,
            request.client,
            request.template,
            differences,
            times_of(was),
            times_of(now),
            is_judged=was is not None,
        )

    def run(self, exchanges: Iterable[RecordedExchange]) -> Iterator[Outcome]:
        running: set[Future[Outcome]] = set()
        most = MOST_AT_ONCE if self.rate else self.at_once
        began = time.monotonic()
        with ThreadPoolExecutor(most) as pool:
            for number, exchange in enumerate(exchanges):
                due = began + number / self.rate if self.rate else began
                if self.stop.wait(max(0, due - time.monotonic())):
                    break
                running.add(pool.submit(self.one, exchange))
                # Whoever is ready is reported at once, and is waited for where no more may run.
                seconds = 0 if len(running) < most else None
                done, running = wait(running, seconds, FIRST_COMPLETED)
                yield from (each.result() for each in done)
            yield from (each.result() for each in as_completed(running))
