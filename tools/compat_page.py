"""The tables of docs/how-tested.md that say on which releases the tests have run.

`make compat` writes tests/data/compat.json, which this reads; nothing here runs a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from page_parts import ROOT, table

RESULTS: Final = ROOT / "tests" / "data" / "compat.json"
SERVERS: Final = {
    "triton-24.03": "Triton 24.03, with echo",
    "python-3.10": "Triton 24.10, stub for Python 3.10, with echo",
    "python-3.12": "Triton 24.10, stub for Python 3.12, with echo",
    "one-interpreter": "Triton 24.10, stub and vLLM {version} in one interpreter",
}
_INSTALLED_SERVER: Final = "Triton {release}, all tests that start a server"


def vllm_releases() -> Iterator[str]:
    rows = [
        [_shown(name, found), *_result(found)]
        for name, found in _results().items()
        if name not in SERVERS and not is_triton(name)
    ]
    yield from table(("vLLM", "tests passed", "day"), rows)


def server_releases() -> Iterator[str]:
    results = _results()
    rows = []
    for name in [*SERVERS, *sorted(filter(is_triton, results))]:
        if found := results.get(name):
            shown = SERVERS.get(name, _INSTALLED_SERVER)
            title = shown.format(release=name.removeprefix("triton-"), version=found["version"])
            rows.append([title, *_result(found)])
    yield from table(("server", "tests passed", "day"), rows)


def _results() -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return read


def is_triton(name: str) -> bool:
    """Tell whether a line is of a server that was installed (`--triton`)."""
    return name.startswith("triton-") and name not in SERVERS


def _shown(name: str, found: Mapping[str, Any]) -> str:
    """Return what a row says of its vLLM: the build, of which a release may have two."""
    build = name.removeprefix("vllm-")
    return f"{found['version']}, overlay" if build == "overlay" else build


def _result(found: Mapping[str, Any]) -> list[str]:
    """Return how many tests passed, of all that ran, and the day of the oldest of these runs."""
    passed = sum(tests["passed"] for tests in found["tests"].values())
    failed = sum(len(tests["failed"]) for tests in found["tests"].values())
    day = min(tests.get("date", found["date"]) for tests in found["tests"].values())
    return [f"{passed} of {passed + failed}" if failed else f"{passed}", day]
