"""Servers to break, and the page of what came of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.answers.mixed_chats import MixedChats
from tests.support.records.measured import Report
from tests.support.servers.serving import Served, serve, write_properties


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="write what the chaos suite saw into this page")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what takes minutes, but for `make chaos`."""
    is_long = collection_path.name.endswith("_at_length.py")
    return True if is_long and not config.getoption("--report") else None


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether what is done many times is done as often as `make chaos` does it.

    `make test` does the same less often, and judges it by the same bounds.
    """
    return bool(request.config.getoption("--report"))


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    report = Report()
    yield report
    if path := request.config.getoption("--report"):
        report.write(path)


@pytest.fixture(scope="session")
def undisturbed(served: Served) -> dict[str, set[str]]:
    """What those of `MixedChats` say that say the same each time."""
    return MixedChats(served, {"greedy": 1, "tool": 1, "structure": 1}).answers()


def _echo(folder: Path, **more: object) -> AbstractContextManager[Served]:
    """Serve `echo`, 50 tokens a second for each stream."""
    properties = {
        "option.rolling_batch": "echo",
        "option.openai": "true",
        "option.token_seconds": 0.02,
        "option.fail_on": "fail",
        "option.max_rolling_batch_size": 64,
    }
    return serve([write_properties(folder / "echo", properties | more)], folder)


@pytest.fixture
def serve_echo(tmp_path: Path) -> Callable[..., AbstractContextManager[Served]]:
    """Serve `echo` from a folder of some name."""
    return lambda name, **more: _echo(tmp_path / name, **more)


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, served; what a test kills is back when it is over."""
    with _echo(tmp_path_factory.mktemp("own")) as server:
        yield server
