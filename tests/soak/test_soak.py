"""Mixed traffic for a while: nothing is lost, nothing leaks, nothing grows slower."""

import statistics
import threading
import time
from pathlib import Path

import psutil
import pytest

from lmi_backend.printable import MIB
from tests.support.serving import Served
from tests.support.traffic import KINDS, Client, Seen
from tests.support.waiting import HANG_SECONDS, wait_for

CLIENTS = 16
# Until everything has been used once: caches are full, pools have their size.
WARM_UP_SHARE = 0.2
MODELS = ("tiny", "echo")


def _memory(served: Served) -> dict[psutil.Process, float]:
    return {each: each.memory_info().rss / MIB for each in served.family()}


def _middles(seen: Seen, began: float, ended: float) -> dict[str, tuple[float, float]]:
    """Return each kind's median seconds in the first and last third."""
    third = (ended - began) / 3
    found = {}
    for kind, times in seen.seconds.items():
        first = [took for at, took in times if at < began + third]
        last = [took for at, took in times if at >= ended - third]
        found[kind] = statistics.median(first), statistics.median(last)
    return found


def test_mixed_traffic(served: Served, request: pytest.FixtureRequest) -> None:
    seconds = request.config.getoption("--minutes") * 60
    seen, stopped = Seen(), threading.Event()
    deaths = {model: served.metric("lmi_worker_deaths_total", model) for model in MODELS}
    clients = [Client(served, seen, seed, stopped) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(seconds * WARM_UP_SHARE)
    before, began = _memory(served), time.monotonic()
    time.sleep(seconds * (1 - WARM_UP_SHARE))
    ended = time.monotonic()
    stopped.set()
    for client in clients:
        client.join(HANG_SECONDS)
    assert not any(client.is_alive() for client in clients), "a request never ended"
    after = _memory(served)
    middles = _middles(seen, began, ended)
    if path := request.config.getoption("--soak-report"):
        _write(path, seconds, seen, middles, before, after)
    assert not seen.failures, seen.failures[:5]
    assert set(seen.counts) == set(KINDS), "a kind of request was never made"
    for model in MODELS:
        wait_for(lambda model=model: served.metric("lmi_requests_open", model) == 0)
        wait_for(lambda model=model: served.metric("lmi_engine_requests_running", model) == 0)
        assert served.metric("lmi_worker_deaths_total", model) == deaths[model]
    assert after.keys() == before.keys(), "a process was started or ended"
    if seconds < 600:
        # Pools still grow; a leak would not show yet either.
        return
    for process, was in before.items():
        assert after[process] < was * 1.05 + 10, (process.name(), was, after[process])
    growing = {kind: both for kind, both in middles.items() if both[1] > 2 * both[0] + 0.05}
    assert not growing


def _write(
    path: Path,
    seconds: float,
    seen: Seen,
    middles: dict[str, tuple[float, float]],
    before: dict[psutil.Process, float],
    after: dict[psutil.Process, float],
) -> None:
    lines = [
        "<!-- Written by `make soak`. -->\n",
        "# Mixed traffic for a while\n",
        "*For operators: what a server does under mixed traffic for half an hour.*\n",
        "Each client sends one request after the other. The server has two shared cores and a "
        "tiny model. A failure is any answer but the expected one.\n",
        "| minutes | clients | requests | failures |",
        "| --- | --- | --- | --- |",
        f"| {seconds / 60:.0f} | {CLIENTS} | {seen.counts.total()} | {len(seen.failures)} |",
        "\nTimes are medians of the first and the last third after the warm-up.\n",
        "| what | requests | first third, ms | last third, ms |",
        "| --- | --- | --- | --- |",
        *(
            f"| {kind} | {seen.counts[kind]} | {first * 1e3:.0f} | {last * 1e3:.0f} |"
            for kind, (first, last) in sorted(middles.items())
        ),
        "\n| process | MiB after the warm-up | at the end |",
        "| --- | --- | --- |",
        *(
            f"| {' '.join(_name(each).split())} | {was:.0f} | {after.get(each, 0):.0f} |"
            for each, was in before.items()
        ),
        *(
            ["\n## Failures\n", *(f"- {each}" for each in seen.failures[:50])]
            if seen.failures
            else []
        ),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    if "stub" in process.name():
        return f"stub of {words[1].split('/')[-3]}"
    return "worker" if "lmi_backend.worker.main" in words else words[0].rpartition("/")[2]
