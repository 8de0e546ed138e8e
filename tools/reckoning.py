"""Reckon what a fleet of many servers needs, from what one was measured to cost.

A calculation on paper: no such fleet was at hand. Everything that was not measured is a field of
`Assumptions`, with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

_MILLION: Final = 1e6
_HOUR: Final = 3600


@dataclass(frozen=True)
class Costs:
    """What was measured, by `make scale`."""

    event_us: Mapping[str, float]
    """CPU of an event of a stream, in microseconds by class of process."""
    request_us: Mapping[str, float]
    """CPU of a request beside its events."""
    scrape_us: float
    """CPU of all processes of a server for one look at its metrics."""
    scrape_bytes: int
    """Of an answer to it."""
    start_seconds: float
    """From a server's start until it takes requests, without the load of an engine."""


@dataclass(frozen=True)
class Assumptions:
    """What was not measured. Each field's `why` is in `WHY`."""

    streams: int = 1_000_000
    streams_a_server: int = 256
    tokens_a_second: float = 40.0
    most_events_a_second: float = 20.0
    answer_seconds: float = 15.0
    busy: float = 0.6
    pickers: int = 3
    scrapes_a_second: float = 20.0
    renewed_share: float = 0.05
    longest_answer_seconds: float = 300.0
    load_seconds: float = 180.0


WHY: Final[Mapping[str, str]] = {
    "streams": "answered at the same time",
    "streams_a_server": "of one server: what its engine answers at once, which a plan says",
    "tokens_a_second": "that an engine makes for each stream",
    "most_events_a_second": "of a stream: the flush policy lets tokens share events, 50 ms apart",
    "answer_seconds": "that an answer takes, about; then its client sends the next request",
    "busy": "of a core that a process is given work for; the rest is for peaks",
    "pickers": "endpoint pickers or routers that each look at every server's metrics",
    "scrapes_a_second": "of each of them; the Gateway API's picker does so by default",
    "renewed_share": "of the servers that a rolling update exchanges at a time",
    "longest_answer_seconds": "that an exchanged server waits for its last stream",
    "load_seconds": "in which an engine loads its weights and compiles",
}
"""Why each assumption is what it is, or what it means."""


@dataclass(frozen=True)
class Reckoning:
    """What a fleet needs."""

    servers: int
    events_a_second: float
    requests_a_second: float
    cores: Mapping[str, float]
    """Of all servers by class of process, and of the router, at the assumed share."""
    front_ends_a_server: int
    """Processes of the front end in each server (`serve --frontend-processes`)."""
    scrapes_a_second: float
    scrape_bytes_a_second: float
    scrape_share: float
    """Of a core of each server, for all that look at it."""
    update_rounds: int
    update_seconds: float
    update_server_hours: float
    """That servers are away for during an update: what spare ones would have to do."""


def reckon(costs: Costs, assumed: Assumptions) -> Reckoning:
    """Return what a fleet needs."""
    servers = math.ceil(assumed.streams / assumed.streams_a_server)
    events = assumed.streams * min(assumed.tokens_a_second, assumed.most_events_a_second)
    requests = assumed.streams / assumed.answer_seconds
    cores = {
        kind: (events * cost + requests * costs.request_us[kind]) / _MILLION / assumed.busy
        for kind, cost in costs.event_us.items()
    }
    looks = assumed.pickers * assumed.scrapes_a_second
    rounds = math.ceil(1 / assumed.renewed_share)
    round_seconds = assumed.longest_answer_seconds + costs.start_seconds + assumed.load_seconds
    return Reckoning(
        servers=servers,
        events_a_second=events,
        requests_a_second=requests,
        cores=cores,
        front_ends_a_server=math.ceil(cores["front end"] / servers),
        scrapes_a_second=servers * looks,
        scrape_bytes_a_second=servers * looks * costs.scrape_bytes,
        scrape_share=looks * costs.scrape_us / _MILLION,
        update_rounds=rounds,
        update_seconds=rounds * round_seconds,
        update_server_hours=servers * round_seconds / _HOUR,
    )


def costs_of(data: Mapping[str, Any]) -> Costs:
    """Return the costs of a data file (benchmarks/scale.json)."""
    found: Mapping[str, Any] = data["costs"]
    return Costs(**{each.name: found[each.name] for each in fields(Costs)})
