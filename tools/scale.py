"""Measure what one server carries, and several; benchmarks/scaling.md is made from what is written.

    python tools/scale.py                    all of it, about four minutes
    python tools/scale.py --parts streams    one part; the others stay as they are in the file

The echo engine stands for an engine: it makes each stream's tokens at a steady pace, in a worker
of its own, and a real client asks the front end for OpenAI's chats. Client, router and servers
share this machine. `make docs` renews benchmarks/scaling.md from benchmarks/scale.json.
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from benchmark.envoy import envoy
from benchmark.held_streams import CpuWatch, Held, Pace, hold
from benchmark.http_client import HttpClient, chat_body
from benchmark.measure import processes_of
from benchmark.report import machine
from benchmark.servers import PROMPT, Running
from benchmark.targets import echo_chats

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "scale.json"
_MILLION: Final = 1e6
_LEVELS: Final = (256, 512, 1024, 2048)
_FAST: Final = 0.05
_LONG: Final = 240
_COSTED: Final = 512
"""Streams whose CPU the costs are taken from: many, and two cores carry them."""
_SHORT: Final = Pace(streams=128, tokens=8, token_seconds=_FAST, rounds=20)
_WORKERS: Final = 8
_OF_WORKERS: Final = Pace(streams=2048, tokens=40, token_seconds=0.4)
_SERVERS: Final = 10
_OF_SERVERS: Final = Pace(streams=1000, tokens=40, token_seconds=0.4)
_SHORT_OF_SERVERS: Final = Pace(streams=1000, tokens=8, token_seconds=0.4, rounds=4)
_SCRAPED_SECONDS: Final = 8.0
_SCRAPES: Final = 20.0
_DESCRIPTORS: Final = 8192
_OPEN: Final = {"option.max_rolling_batch_size": 4096, "option.max_running": 4096}
"""As many streams at once as come: no limit of ours is what breaks."""

_Data = dict[str, Any]


def streams(data: _Data) -> None:
    """Measure one server with one worker: levels of streams, costs, a scrape."""
    began = time.monotonic()
    with _server({"option.token_seconds": _FAST}) as (address, running, asks):
        start = time.monotonic() - began
        processes = list(processes_of(running))
        rows = []
        for count in _LEVELS:
            rows.append(_held(asks, Pace(count, _LONG, _FAST), processes))
        short = _held(asks, _SHORT, processes)
        _say("looks at its metrics")
        scrape_us, scrape_bytes = _scrape(address, processes)
        _say(f"a look costs {scrape_us:.0f} us of CPU and {scrape_bytes} bytes")
        data["one_server"] = {
            "token_seconds": _FAST,
            "start_seconds": round(start, 1),
            "mib": round(_memory(running)),
            "rows": [each.values() for each in rows],
        }
    long = next(each for each in rows if each.streams == _COSTED)
    costs = data.setdefault("costs", {})
    kinds = ("front end", "stub", "worker front end", "client")
    _note_costs(costs, (long, Pace(_COSTED, _LONG, _FAST)), (short, _SHORT), kinds)
    costs |= {"scrape_us": round(scrape_us, 1), "scrape_bytes": scrape_bytes}
    costs["start_seconds"] = round(start, 1)


def workers(data: _Data) -> None:
    """Measure one server with eight workers, at a pace that this machine carries."""
    more: _Data = {"minWorkers": _WORKERS, "maxWorkers": _WORKERS}
    more["option.token_seconds"] = _OF_WORKERS.token_seconds
    found = {}
    for flush, option in (("default", {}), ("none", {"option.stream_flush_ms": 0})):
        with _server(more | option) as (_, running, asks):
            found[flush] = _held(asks, _OF_WORKERS, list(processes_of(running))).values()
    data["workers"] = {
        "workers": _WORKERS,
        "token_seconds": _OF_WORKERS.token_seconds,
        "by_flush": found,
    }


def servers(data: _Data) -> None:
    """Measure ten servers behind Envoy: what one takes of memory, and what the router costs."""
    began = time.monotonic()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(_SERVERS))
        pace = {"option.token_seconds": _OF_SERVERS.token_seconds}
        started = list(pool.map(stack.enter_context, (_server(pace) for _ in range(_SERVERS))))
        took = time.monotonic() - began
        memory = [_memory(running) for _, running, _ in started]
        _say(f"{_SERVERS} servers after {took:.0f} s, {sum(memory) / _SERVERS:.0f} MiB each")
        router, pid = stack.enter_context(envoy([address for address, *_ in started]))
        processes = [one for _, running, _ in started for one in processes_of(running)]
        processes.append(("router", psutil.Process(pid)))
        asks = _asks(router)
        found = _held(asks, _OF_SERVERS, processes)
        full = [_memory(running) for _, running, _ in started]
        short = _held(asks, _SHORT_OF_SERVERS, processes)
    _note_costs(
        data.setdefault("costs", {}), (found, _OF_SERVERS), (short, _SHORT_OF_SERVERS), ("router",)
    )
    data["servers"] = {
        "servers": _SERVERS,
        "token_seconds": _OF_SERVERS.token_seconds,
        "start_seconds": round(took, 1),
        "mib": round(sum(memory) / _SERVERS),
        "mib_with_streams": round(sum(full) / _SERVERS),
        "fit": int(machine()["memory_gib"] * 1024 / (sum(full) / _SERVERS)),
        **found.values(),
    }


def _note_costs(
    costs: _Data, long: tuple[Held, Pace], short: tuple[Held, Pace], kinds: Sequence[str]
) -> None:
    """Note what an event and a request cost each class of process, in microseconds."""
    for kind in kinds:
        of_long, of_short = (each[0].cores[kind] / each[0].came for each in (long, short))
        both = event_and_request(of_long, of_short, long[1].tokens, short[1].tokens)
        event, request = (cost * _MILLION for cost in both)
        costs.setdefault("event_us", {})[kind] = round(event, 1)
        costs.setdefault("request_us", {})[kind] = round(request, 1)


def event_and_request(
    of_long: float, of_short: float, long_tokens: int, short_tokens: int
) -> tuple[float, float]:
    """Return what a token in an event of its own costs, and a request beside them.

    Args:
        of_long: cost a token of long answers.
        of_short: cost a token of short ones.
        long_tokens: of a long answer.
        short_tokens: of a short one.
    """
    request = max(0.0, (of_short - of_long) / (1 / short_tokens - 1 / long_tokens))
    return max(0.0, of_long - request / long_tokens), request


PARTS: Final[Mapping[str, Callable[[_Data], None]]] = {
    "streams": streams,
    "workers": workers,
    "servers": servers,
}


@contextmanager
def _server(more: _Data) -> Iterator[tuple[str, Running, HttpClient]]:
    with echo_chats(_OPEN | {"job_queue_size": 4096} | more) as (address, running):
        yield address, running, _asks(address)


def _asks(address: str) -> HttpClient:
    return HttpClient(f"http://{address}/v1/chat/completions", chat_body(PROMPT, "bench"))


def _held(asks: HttpClient, pace: Pace, processes: list[tuple[str, psutil.Process]]) -> Held:
    found = hold(asks, pace, processes)
    _say(found.line())
    return found


def _scrape(address: str, processes: list[tuple[str, psutil.Process]]) -> tuple[float, int]:
    """Return what a look at the metrics costs beside doing nothing, in us of CPU, and its bytes."""
    idle, _ = _looked(address, processes, 0)
    busy, size = _looked(address, processes, _SCRAPES)
    return (busy - idle) / _SCRAPES * _MILLION, size


def _looked(
    address: str, processes: list[tuple[str, psutil.Process]], rate: float
) -> tuple[float, int]:
    """Return the cores in use while a client looks so often a second, and the bytes of a look."""
    size, end = 0, time.monotonic() + _SCRAPED_SECONDS
    with CpuWatch(processes) as watch, closing(http.client.HTTPConnection(address)) as client:
        began = time.monotonic()
        while time.monotonic() < end:
            if rate:
                client.request("GET", "/metrics")
                size = len(client.getresponse().read())
            time.sleep(1 / (rate or 1))
    return sum(watch.cores(began, end).values()), size


def _memory(running: Running) -> float:
    """Return the MiB of a server: its processes' own pages, and their part of shared ones."""
    root = psutil.Process(running.pid)
    each = [one.memory_full_info().pss for one in (root, *root.children(recursive=True))]
    return float(sum(each)) / 2**20


def main(words: list[str]) -> int:
    """Measure, and write the file; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output", type=Path, default=DATA, help="default %(default)s")
    asked = parser.parse_args(words)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _DESCRIPTORS), most))
    path: Path = asked.output
    data: _Data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for number, part in enumerate(asked.parts, 1):
        _say(f"part {number} of {len(asked.parts)}: {part}")
        PARTS[part](data)
        data["machine"] = machine()
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    _say(f"wrote {path}; `make docs` renews benchmarks/scaling.md")
    return 0


_BEGAN: Final = time.monotonic()


def _say(text: str) -> None:
    sys.stdout.write(f"[{time.monotonic() - _BEGAN:4.0f} s] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
