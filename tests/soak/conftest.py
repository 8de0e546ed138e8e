"""How long, and where the result goes."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=0.25, help="of mixed traffic (0.25)")
    parser.addoption("--soak-report", type=Path, help="write what the soak saw into this page")
