"""docs/scaling.md, from what `make scale` measured and what tools/reckoning.py makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from reckoning import WHY, Assumptions, Reckoning, costs_of, reckon

from lmi_backend.ipc.flush_policy import MAX_RESPONSES, RESPONSE_SECONDS

DATA: Final = Path(__file__).resolve().parent.parent / "benchmarks" / "scale.json"
_ALONE: Final = ("front end", "stub", "tritonserver")
"""Processes of which a server has one."""
_KEPT_UP: Final = 0.95
_LATE_MS: Final = 50
_BUSY: Final = 0.8
_HEAD: Final = (
    "streams",
    "tokens/s, of those made",
    "first ms, p50 / p99",
    "gap ms, p50 / p99",
    "late ms, p50 / p99",
    "front end",
    "stub",
    "tritonserver",
    "workers",
    "client",
)

_Data = Mapping[str, Any]


def scaling_page() -> Iterator[str]:
    """Yield the lines of the page."""
    data: _Data = json.loads(DATA.read_text(encoding="utf-8"))
    here = data["machine"]
    yield "# What one server carries, and many\n"
    yield "*For people who size servers: how many streams one server carried, and several.*\n"
    yield (
        f"Measured by `make scale` on {here['cores']} cores of {here['processor']} with "
        f"{here['memory_gib']:.0f} GiB, **which the client and the router share**. The echo engine "
        "makes the tokens of each stream at a steady pace. A real client starts all streams in the "
        "same moment, as OpenAI chats. CPU is in cores, while all streams run.\n"
    )
    yield from _one_server(data["one_server"], here["cores"])
    yield from _workers(data["workers"])
    yield from _servers(data["servers"])
    yield from _costs(data["costs"])
    yield from _fleet(data)


def _one_server(found: _Data, cores: int) -> Iterator[str]:
    rate = 1 / found["token_seconds"]
    yield "## One server\n"
    yield (
        f"One worker makes {rate:g} tokens/s for each stream, with the default flush policy. The "
        f"server is ready after {found['start_seconds']:g} s and uses {found['mib']:,} MiB after "
        "all these streams.\n"
    )
    yield from _table(found["rows"])
    yield from _late_note()
    broken = next((row for row in found["rows"] if not _keeps_up(row)), None)
    held = [row for row in found["rows"] if _keeps_up(row)]
    if held:
        most = held[-1]
        yield (
            f"**{most['streams']:,} streams are carried** here: {most['came']:,.0f} tokens/s. "
            f"{_sum(most):.2f} of {cores} cores are in use, {most['cores']['client']:.2f} of them "
            "by the client.\n"
        )
    if broken is None:
        yield "None of these breaks it.\n"
        return
    yield from _broken(broken, cores)


def _broken(row: _Data, cores: int) -> Iterator[str]:
    if row["failure"]:
        yield f"**{row['streams']:,} streams break it**: `{row['failure']}`\n"
        return
    kind, used = max(row["busiest"].items(), key=lambda each: float(each[1]))
    yield (
        f"**{row['streams']:,} streams are held, but not at their pace**: "
        f"{row['came'] / row['asked']:.0%} of the tokens come in time. "
        f"Each stream finishes, but late. {_sum(row):.2f} of {cores} cores are in use; the "
        f"busiest process is the {_named(kind)} ({used:.2f}).\n"
    )


def _workers(found: _Data) -> Iterator[str]:
    yield "## Eight workers\n"
    rate = 1 / found["token_seconds"]
    default, unheld = (found["by_flush"][flush] for flush in ("default", "none"))
    yield (
        f"{found['workers']} workers in one server carry {default['streams']:,} streams of "
        f"{rate:g} tokens/s, as many as these cores carry with the client. The first row has "
        "the default flush policy, the second `option.stream_flush_ms=0`.\n"
    )
    yield from _table([default, unheld])
    if default["failure"] or unheld["failure"]:
        yield f"Not all finished: `{default['failure'] or unheld['failure']}`\n"
        return
    alone = {
        kind: max(row["busiest"].get(kind, 0.0) for row in (default, unheld)) for kind in _ALONE
    }
    kind, used = max(alone.items(), key=lambda each: each[1])
    yield (
        f"Of the other processes the busiest is the {_named(kind)}, with {used:.0%} of a core "
        f"({'under' if used <= _BUSY else 'over'} {_BUSY:.0%}). The added delay of a token "
        f"(99th percentile) is {_delay(default)}, and {_delay(unheld)} without the policy.\n"
    )


def _delay(row: _Data) -> str:
    late = row["late_ms"]["p99"]
    return f"{late:.0f} ms ({'within' if late <= _LATE_MS else 'over'} {_LATE_MS} ms)"


def _servers(row: _Data) -> Iterator[str]:
    yield "## Ten servers\n"
    yield (
        f"{row['servers']} servers, started together, are ready after {row['start_seconds']:g} s. "
        f"One uses {row['mib']:,} MiB of memory, and {row['mib_with_streams']:,} MiB after its "
        f"part of the streams; {row['fit']} would fit here. Shared pages count in part. Envoy "
        f"passes {row['streams']:,} streams of {1 / row['token_seconds']:g} tokens/s to them:\n"
    )
    yield from _table([row], "router")
    share = row["cores"]["router"] / row["came"] * 1e6
    yield f"The router takes {share:.0f} µs of CPU for a token.\n"


def _costs(costs: _Data) -> Iterator[str]:
    yield "## Costs\n"
    yield (
        "CPU in µs: of a token in an event of its own, and of a request without its tokens. The "
        "worker runs the echo engine; the CPU of vLLM comes on top.\n"
    )
    yield "| process | an event | a request |"
    yield "| --- | --- | --- |"
    for kind, event in costs["event_us"].items():
        yield f"| {_named(kind)} | {event} | {costs['request_us'][kind]} |"
    yield ""
    yield (
        f"A scrape of `/metrics` ({costs['scrape_bytes']:,} bytes) takes {costs['scrape_us']:.0f} "
        "µs of all processes of a server. On Triton's own ports a response takes "
        f"about {RESPONSE_SECONDS * 1e6:.0f} µs of stub and tritonserver under load. The flush "
        f"policy allows a stub {MAX_RESPONSES:,} responses a second. Beyond that, tokens share "
        "responses, up to 50 ms apart.\n"
    )


def _fleet(data: _Data) -> Iterator[str]:
    assumed, costs = Assumptions(), costs_of(data)
    found = reckon(costs, assumed)
    yield "## A million streams\n"
    yield (
        "**A calculation, not a measurement** (`tools/reckoning.py`). It uses the costs above and "
        "these assumptions:\n"
    )
    yield "| assumed | value | |"
    yield "| --- | --- | --- |"
    for each in fields(assumed):
        yield f"| `{each.name}` | {getattr(assumed, each.name):,} | {WHY[each.name]} |"
    yield ""
    yield "| needed | |"
    yield "| --- | --- |"
    for what, value in _needed(found, assumed):
        yield f"| {what} | {value} |"
    yield ""
    yield (
        "Not counted: networks, TLS, the engines and their GPUs, the CPU of the pickers, and "
        "prompts that a new server computes again after an update."
    )


def _needed(found: Reckoning, assumed: Assumptions) -> Iterator[tuple[str, str]]:
    yield "servers", f"{found.servers:,}"
    yield "events/s, requests/s", f"{found.events_a_second:,.0f}, {found.requests_a_second:,.0f}"
    for kind in ("front end", "stub", "router"):
        each = found.cores[kind] / found.servers
        yield f"cores of {_named(kind)}s", f"{found.cores[kind]:,.0f} ({each:.2f} a server)"
    yield "front-end processes a server", str(found.front_ends_a_server)
    megabytes = found.scrape_bytes_a_second / 1e6
    yield "scrapes of metrics", f"{found.scrapes_a_second:,.0f}/s, {megabytes:,.0f} MB/s"
    yield "share of a core of each server for them", f"{found.scrape_share:.1%}"
    away = f"{assumed.renewed_share:.0%} of the servers at a time"
    yield (
        "a rolling update",
        f"{found.update_rounds} rounds, {found.update_seconds / 3600:.1f} h, {away}; "
        f"{found.update_server_hours:,.0f} server-hours without streams",
    )


def _table(rows: list[_Data], *more: str) -> Iterator[str]:
    yield f"| {' | '.join((*_HEAD, *more))} |"
    yield "| --- " * (len(_HEAD) + len(more)) + "|"
    for row in rows:
        if row["failure"]:
            yield f"| {row['streams']:,} | {' | '.join('—' * (len(_HEAD) + len(more) - 1))} |"
            continue
        cells = [
            f"{row['streams']:,}",
            f"{row['came']:,.0f} of {row['asked']:,.0f}",
            *(_times(row[name]) for name in ("first_ms", "gap_ms", "late_ms")),
            *(_cores(row, kind) for kind in (*_ALONE, "worker front end", "client", *more)),
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _late_note() -> Iterator[str]:
    yield (
        "*Late*: how much later a token came than the steady pace of the engine allows, counted "
        "from the earliest token. It is not known where tokens share an event.\n"
    )


def _times(found: Mapping[str, float]) -> str:
    return f"{found['p50']:,.0f} / {found['p99']:,.0f}" if found else "not known"


def _cores(row: _Data, kind: str) -> str:
    return f"{row['cores'].get(kind, 0.0):.2f}"


def _keeps_up(row: _Data) -> bool:
    return not row["failure"] and row["came"] >= _KEPT_UP * row["asked"]


def _sum(row: _Data) -> float:
    return float(sum(row["cores"].values()))


def _named(kind: str) -> str:
    """Return a class of process as readers know it."""
    return "worker" if kind == "worker front end" else kind
