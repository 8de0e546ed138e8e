"""Tests that the tables of pages name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"


def check_test(test: str, where: str) -> None:
    """Refuse a row that names a test, as file::function below tests/, which is not there.

    Raises:
        SystemExit: it is not.
    """
    file, _, function = test.partition("::")
    if function not in _names(TESTS / file):
        message = f"{where}: there is no test {test}"
        raise SystemExit(message)


@cache
def _names(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))
