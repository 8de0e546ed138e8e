"""docs/fleet.md, from what routers and servers did."""

# ruff: noqa: E501  the rows of a table

import os
from collections import Counter
from pathlib import Path

_HEAD = """<!-- Written by `make fleet`. -->

# Past one server

*For people who run several servers: what routers need, and what a fault costs behind each.*

Use a router that you know: lmi-backend has none of its own. It does what routers expect of a server:

- `/ping` answers 503 before the server stops.
- A request that it cannot accept gets 503 with `Retry-After`.
- `/metrics` has the names that endpoint pickers read.
- It closes its connections when it stops.

`lmi-backend deploy` writes what a cluster needs ([deploy](../deploy/README.md)).

## Behind routers

Three servers run the echo engine. {streams} clients request one stream after the other, each of {tokens} tokens at
50 a second. The routers are the real programs, configured by `tests/support/routers.py`. Everything
shares {cores} cores. *Lost* counts the streams that did not finish with every token, of all streams.

{table}

- **Rolling restart**: each server in turn gets SIGTERM, stops and starts again, without a `preStop`.
  It refuses requests from SIGTERM on, and the router sends them to another server.
- **Killed**: every process of one server gets `kill -9`. *It had* counts the streams it was running;
  no router can save these. *Lost later* counts lost streams that began a second or more afterwards.
- **Drained**: `lmi-backend drain` runs on one server, which then refuses requests.
- **Full**: one server has as many requests as it accepts, from elsewhere.
- **Hanging**: every process of one server is stopped (SIGSTOP) for {hang} s. *Waited* counts the streams
  that it delayed. *Last sent there* is when the router sent it the last of these.
- **Stays**: the share of the requests of a session that one server answered. Six sessions name
  themselves in a header.

How to configure the routers:

- **Envoy**: set `retry_on: connect-failure,reset,retriable-status-codes` with 503. Raise
  `circuit_breakers … max_retries`: by default only three requests are retried at a time.
- **HAProxy**: set `retry-on conn-failure empty-response response-timeout 503` and `option redispatch 1`.
  Set `tune.bufsize` so that a request fits: HAProxy does not retry a larger one.
- **LiteLLM's proxy** passes refusals on to clients with `num_retries: 3`, `cooldown_time: 2` and
  `routing_strategy: least-busy`. A server that refuses is never busy. Other strategies were not run.
- **All**: set no timeout for the whole request, and at least 20 s for silence. The server sends
  something every 15 s.
{notes}
"""


class FleetReport:
    """Collects what was seen of each router."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.notes: list[str] = []
        self.prefixes: list[str] = []
        """Rows: a router, and the share of prompt tokens found in caches without and with it."""

    def note(self, router: str, fault: str, seen: str) -> None:
        """Add a cell."""
        self.rows.setdefault(router, {})[fault] = seen

    def write(self, path: Path, *, streams: int, tokens: int, hang: float) -> None:
        """Write the page."""
        faults = list(dict.fromkeys(name for row in self.rows.values() for name in row))
        lines = [f"| router | {' | '.join(faults)} |", "| --- " * (len(faults) + 1) + "|"]
        for router, row in self.rows.items():
            cells = (row.get(fault, "not run") for fault in faults)
            lines.append(f"| {router} | {' | '.join(cells)} |")
        page = _HEAD.format(
            streams=streams,
            tokens=tokens,
            cores=len(os.sched_getaffinity(0)),
            table="\n".join(lines),
            hang=f"{hang:g}",
            notes="".join(f"- {line}\n" for line in self.notes),
        )
        found = _PREFIXES.format(rows="\n".join(self.prefixes)) if self.prefixes else ""
        path.write_text(f"{page}{found}{_TAIL}", encoding="utf-8")


def lost(failures: Counter[str], asked: int) -> str:
    """Say how many of all were lost, and of what."""
    count = sum(failures.values())
    why = ", ".join(sorted({text.partition(": ")[0] for text in failures}))
    return f"{count} of {asked}" + (f" ({why})" if count else "")


_PREFIXES = """
## Prefixes

Two servers run vLLM with the tiny model. Eight sessions, each with its own prefix, send four requests
each, one at a time in random order. The table has the share of prompt tokens that a prefix cache
had (`vllm:prefix_cache_hits_total` of `vllm:prefix_cache_queries_total`):

| router | not sticky | sticky by session |
| --- | --- | --- |
{rows}
"""

_TAIL = """
## Not run here

- A Kubernetes cluster. The real Kustomize builds the manifests, and tests validate them against the
  schemas of Kubernetes 1.37 and of each custom kind.
- KEDA, KServe, LeaderWorkerSet, a gateway, or the Go program of the endpoint picker. A test has its
  rules for metrics.
- GPUs, Ray, images, and more than one machine.
"""
