"""docs/fleet.md, from what routers and servers did."""

# ruff: noqa: E501  the rows of a table

import os
from collections import Counter
from pathlib import Path

_HEAD = """<!-- Written by `make fleet`. -->

# Past one server

We bring no router. A server of ours is what routers expect of one: `/ping` that says 503 before it
goes, 503 with `Retry-After` for what it will not take, metrics under the names that endpoint pickers
read, connections that are closed when it ends. `lmi-backend deploy` writes what a cluster needs
([deploy](../deploy/README.md)).

## Behind routers

Three servers with the echo engine, {streams} clients that ask for one stream after the other ({tokens} tokens
at 50 a second each), while the faults below are done. The routers are the real programs, as
`tests/support/routers.py` sets them; they and the load share {cores} cores with everything else. *Lost*
are streams that did not come to their end with every token, of all that were asked for.

{table}

- **Rolling restart**: each server in turn gets SIGTERM, ends, and is started again, without a
  `preStop`. It refuses from that moment on, and the router asks another.
- **Killed**: every process of one server, `kill -9`. Its own streams cannot be saved: *of its own* is
  how many it had. *Later* are streams that began a second or more after it and were lost.
- **Drained**: `lmi-backend drain` on one, which goes on to run and refuses.
- **Full**: one server has as many requests as it takes, from elsewhere.
- **Hanging**: every process of one is stopped (SIGSTOP) for {hang} s and goes on then. What was asked of it in
  the first moment waits; routers give a server up that says nothing for 20 s, ours says something every 15 s.
- **Stays**: the share of a session's requests that one server answered, of six sessions that name
  themselves in a header.

What the routers need to be told, found here:

- **Envoy**: `retry_on: connect-failure,reset,retriable-status-codes` with 503, and
  `circuit_breakers … max_retries`: by default three requests may be tried again at a time, and a
  fourth gets the server's 503.
- **HAProxy**: `retry-on conn-failure empty-response response-timeout 503`, `option redispatch 1`, and a
  `tune.bufsize` into which a request fits: a larger one is not sent twice.
- **LiteLLM's proxy** hands refusals on, as it was set here (`num_retries: 3`, `cooldown_time: 2`,
  `routing_strategy: least-busy`): a server that refuses is never busy. Other strategies were not run.
- **All**: no bound on the whole request; 20 s or more without a byte.
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

Two servers with vLLM and the tiny model, on the same cores as all else. Eight sessions ask four times
each, one request at a time and in a drawn order, with a prefix of their own. Of all prompt tokens,
found in a prefix cache (`vllm:prefix_cache_hits_total` of `vllm:prefix_cache_queries_total`):

| router | not sticky | sticky by session |
| --- | --- | --- |
{rows}
"""

_TAIL = """
## Not run here

- A Kubernetes cluster: the manifests are built by the real Kustomize and held against the schemas of
  Kubernetes 1.37 and of each project's own kinds, no more. Nor KEDA, KServe, LeaderWorkerSet, a
  gateway, or the endpoint picker's Go program: its rules of reading metrics are ported into a test.
- GPUs, Ray, images, and more machines than one.
"""
