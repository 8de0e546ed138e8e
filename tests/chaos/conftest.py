"""Servers to break, and the page of what came of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos_report import Report
from tests.support.serving import Served, serve, write_properties


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --report."""
    parser.addoption("--report", type=Path, help="write what the chaos suite saw into this page")


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    report = Report()
    yield report
    if path := request.config.getoption("--report"):
        report.write(path, len(os.sched_getaffinity(0)))


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, tiny_properties: dict[str, Any]
) -> Iterator[Served]:
    """`tiny` on vLLM, which is taken for dead after five seconds without a step."""
    folder = tmp_path_factory.mktemp("engine")
    plain = {name: value for name, value in tiny_properties.items() if "lora" not in name}
    tiny = write_properties(folder / "tiny", plain | {"option.hang_timeout": 5})
    with serve([tiny], folder) as server:
        yield server


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Served]:
    """`echo`, 50 tokens a second for each stream."""
    properties = {
        "option.rolling_batch": "echo",
        "option.token_seconds": 0.02,
        "option.fail_on": "fail",
        "option.max_rolling_batch_size": 64,
    }
    with serve([write_properties(tmp_path / "echo", properties)], tmp_path) as server:
        yield server
