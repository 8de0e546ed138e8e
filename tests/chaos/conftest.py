"""Servers to break, and the page of what came of it."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.chaos_report import Report
from tests.support.mixed_chats import MixedChats
from tests.support.serving import Served, serve, write_properties


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --report."""
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
        report.write(path, len(os.sched_getaffinity(0)))


@pytest.fixture(scope="session")
def undisturbed(served: Served) -> dict[str, set[str]]:
    """What those of `MixedChats` say that say the same each time."""
    return MixedChats(served, {"greedy": 1, "tool": 1, "structure": 1}).answers()


@pytest.fixture
def serve_echo(tmp_path: Path) -> Callable[..., AbstractContextManager[Served]]:
    """Serve `echo`, 50 tokens a second for each stream, from a folder of some name."""
    properties = {
        "option.rolling_batch": "echo",
        "option.openai": "true",
        "option.token_seconds": 0.02,
        "option.fail_on": "fail",
        "option.max_rolling_batch_size": 64,
    }

    def served(name: str, **more: object) -> AbstractContextManager[Served]:
        folder = write_properties(tmp_path / name / "echo", properties | more)
        return serve([folder], tmp_path / name)

    return served


@pytest.fixture
def echo(serve_echo: Callable[..., AbstractContextManager[Served]]) -> Iterator[Served]:
    """`echo`, served."""
    with serve_echo("own") as server:
        yield server
