"""Three servers, routers before them, and the page of what came of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.records.measured import FleetReport
from tests.support.servers.pods import Pod, pods
from tests.support.servers.proxies import PROXIES
from tests.support.servers.routers import ROUTERS, Router, Running

STOPPED_SECONDS = 6.0
SHORT = ("Envoy",)
SHORT_PROXIES = ("nginx", "HAProxy")
"""What is tried without --fleet-report."""
AT_LENGTH = "_at_length.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --fleet-report, which runs every router through every fault."""
    parser.addoption(
        "--fleet-report", type=Path, help="try all routers in all ways, and write it into this page"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what takes minutes."""
    is_long = bool(config.getoption("--fleet-report"))
    return True if collection_path.name.endswith(AT_LENGTH) and not is_long else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try all routers only where somebody has the time."""
    if "router" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--fleet-report")
        tried = [each for each in ROUTERS if is_long or each.name in SHORT]
        metafunc.parametrize("router", tried, ids=[each.name for each in tried], scope="module")
    if "proxy" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--fleet-report")
        tried = [each for each in PROXIES if is_long or each.name.startswith(SHORT_PROXIES)]
        metafunc.parametrize("proxy", tried, ids=[each.name for each in tried], scope="module")


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether there is time for everything."""
    return bool(request.config.getoption("--fleet-report"))


@pytest.fixture(scope="session")
def fleet_report(request: pytest.FixtureRequest) -> Iterator[FleetReport]:
    report = FleetReport()
    yield report
    if path := request.config.getoption("--fleet-report"):
        report.write(path)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pod]]:
    """Three, with the echo engine."""
    with pods(tmp_path_factory.mktemp("fleet"), 3) as made:
        yield made


@pytest.fixture(scope="module")
def running(
    router: Router, servers: list[Pod], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    router.environment()
    folder = tmp_path_factory.mktemp("router")
    with router.running(folder, [each.port for each in servers]) as started:
        yield started
