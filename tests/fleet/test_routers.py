"""Routers of others before three servers of ours, while servers are restarted, killed, full.

`make test` tries one router and two faults; `make fleet` all of them, and writes docs/fleet.md.
"""

import time
from collections import Counter

from tests.support.answers.steady_load import SteadyLoad
from tests.support.records.measured import FleetReport, lost
from tests.support.servers.pods import MODEL, Pod, wait_until_asked
from tests.support.servers.routers import Router, Running


def test_a_rolling_restart_loses_nothing(
    router: Router,
    running: Running,
    servers: list[Pod],
    fleet_report: FleetReport,
    *,
    is_long: bool,
) -> None:
    with SteadyLoad(running.url, MODEL) as load:
        for server in servers if is_long else servers[:1]:
            wait_until_asked(server)
            server.stop()
            server.start()
        wait_until_asked(server)
    fleet_report.note(
        f"{router.name} {router.version()}",
        "rolling restart: lost",
        lost(load.failures, len(load.all)),
    )
    assert load.whole > 100
    if router.keeps_streams_whole:
        assert load.failures == Counter()


def test_a_killed_server_takes_only_its_own_streams_with_it(
    router: Router, running: Running, servers: list[Pod], fleet_report: FleetReport
) -> None:
    victim = servers[0]
    with SteadyLoad(running.url, MODEL) as load:
        wait_until_asked(victim)
        own = victim.most_running()
        assert own >= 2
        victim.kill()
        load.go_on()
        # The router knows by now.
        known_at = time.monotonic()
        load.go_on()
    later = load.failed_after(known_at)
    name = f"{router.name} {router.version()}"
    fleet_report.note(name, "killed: lost", f"{len(load.failed)} of {len(load.all)}")
    fleet_report.note(name, "killed: it had", f"{own:.0f}")
    fleet_report.note(name, "killed: lost later", f"{len(later)}")
    victim.start()
    # One is on the way for each that ends.
    if router.keeps_streams_whole:
        assert later == []
        assert len(load.failed) <= 2 * own
