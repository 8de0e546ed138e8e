"""More faults, in minutes; the page of all is docs/fleet.md (`make fleet`)."""

import contextlib
import http.client
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.fleet.conftest import STOPPED_SECONDS
from tests.support.answers.steady_load import SteadyLoad
from tests.support.records.measured import FleetReport, lost
from tests.support.run.waiting import HANG_SECONDS, nothing_more, wait_for
from tests.support.servers.pods import MODEL, PROPERTIES, Pod, wait_until_asked
from tests.support.servers.routers import SESSION, Router, Running

_SECONDS = 20.0
_RATE = 20.0


def test_a_drained_server_is_left_alone(
    router: Router, running: Running, servers: list[Pod], fleet_report: FleetReport
) -> None:
    with SteadyLoad(running.url, MODEL) as load:
        wait_until_asked(servers[1])
        servers[1].drain()
        load.go_on()
    servers[1].stop()
    servers[1].start()
    fleet_report.note(
        f"{router.name} {router.version()}", "drained: lost", lost(load.failures, len(load.all))
    )
    if router.keeps_streams_whole:
        assert load.failures == Counter()


def test_what_a_full_server_refuses_another_takes(
    router: Router, running: Running, servers: list[Pod], fleet_report: FleetReport
) -> None:
    places = PROPERTIES["option.max_rolling_batch_size"] + PROPERTIES["job_queue_size"]
    with servers[2].occupied(places), SteadyLoad(running.url, MODEL) as load:
        status, headers, _ = servers[2].served.ask(
            "/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 1}
        )
        load.go_on()
    assert status == 503
    assert int(headers["retry-after"]) >= 1
    fleet_report.note(
        f"{router.name} {router.version()}", "full: lost", lost(load.failures, len(load.all))
    )
    if router.keeps_streams_whole:
        assert load.failures == Counter()


def test_a_server_that_stands_still_is_gone_round(
    router: Router, running: Running, servers: list[Pod], fleet_report: FleetReport
) -> None:
    with SteadyLoad(running.url, MODEL) as load:
        wait_until_asked(servers[0])
        began = time.monotonic()
        with servers[0].hanging():
            nothing_more(STOPPED_SECONDS, "the server does nothing")
        went_on = time.monotonic()
        wait_for(lambda: servers[0].served.ask("/ping")[0] == 200)
        load.go_on()
    # Those that a router sent there before it knew.
    waited = [each for each in load.all if each.began < went_on and each.ended_at - each.began > 3]
    last = max((each.began - began for each in waited), default=0.0)
    name = f"{router.name} {router.version()}"
    fleet_report.note(name, "hanging: lost", lost(load.failures, len(load.all)))
    fleet_report.note(name, "hanging: waited", f"{len(waited)}")
    fleet_report.note(name, "hanging: last sent there", f"{max(0.0, last):.1f} s")
    assert load.whole > 50


def test_a_session_stays_with_a_server(
    router: Router, servers: list[Pod], tmp_path: Path, fleet_report: FleetReport
) -> None:
    name = f"{router.name} {router.version()}"
    if not router.is_sticky:
        fleet_report.note(name, "stays", "not tried")
        return
    with (
        router.running(tmp_path, [each.port for each in servers], is_sticky=True) as started,
        SteadyLoad(started.url, MODEL, headers=lambda who: {SESSION: f"s{who % 6}"}) as load,
    ):
        load.go_on()
    ids = {each.id for each in load.all}
    where: dict[int, Counter[int]] = {}
    for place, server in enumerate(servers):
        for one in ids.intersection(server.answered()):
            session = int(one.split(".")[1]) % 6
            where.setdefault(session, Counter())[place] += 1
    assert len(where) == 6
    shares = [max(each.values()) / sum(each.values()) for each in where.values()]
    fleet_report.note(name, "stays", f"{100 * sum(shares) / len(shares):.0f} %")
    assert load.failures == Counter()


def test_scraping_twenty_times_a_second_costs_little(
    servers: list[Pod], fleet_report: FleetReport
) -> None:
    """By CPU time, beside that of doing nothing; a machine at work takes more for the same."""
    server = servers[0]
    idle = _cost(server, 0)
    kept, new = (
        100 * (_cost(server, _RATE, is_new=is_new) - idle) / _SECONDS for is_new in (False, True)
    )
    fleet_report.notes.append(
        "**An endpoint picker** reads `/metrics` twenty times a second. That takes "
        f"{kept:.1f} % of a core of a server on one connection, and {new:.1f} % with a new "
        "connection for each scrape."
    )
    assert kept < 1


def _cost(server: Pod, rate: float, *, is_new: bool = False) -> float:
    """Return the CPU seconds of a server over a while in which it is asked at a rate."""
    before = _cpu(server)
    end = time.monotonic() + _SECONDS
    client = http.client.HTTPConnection(server.served.front_end, timeout=HANG_SECONDS)
    with contextlib.closing(client):
        while time.monotonic() < end:
            if rate:
                client.request("GET", "/metrics")
                assert client.getresponse().read()
            if is_new:
                client.close()
            time.sleep(1 / (rate or 1))
    return _cpu(server) - before


def _cpu(server: Pod) -> float:
    total = 0.0
    for each in [psutil.Process(server.served.process.pid), *server.served.family()]:
        used = each.cpu_times()
        total += used.user + used.system
    return total
