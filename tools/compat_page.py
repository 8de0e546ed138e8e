"""The tables of docs/engines.md that say on which releases the tests have run.

`make compat` writes tests/data/compat.json, which this reads; nothing here runs a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from page_parts import ROOT, table

from lmi_backend.engines.vllm.fast_paths import COSTS

RESULTS: Final = ROOT / "tests" / "data" / "compat.json"
_COLUMNS: Final = {
    "short": "short set",
    "python": "Python mode",
    "bodies": "OpenAI's bodies",
    "lora": "LoRA",
    "ranks": "two MPI ranks",
    "kill": "a killed rank",
}
_SERVERS: Final = {
    "triton-24.03": "Triton 24.03 (2.44), of nvidia-pytriton {version}, with echo",
    "python-3.10": "Triton 24.10 (2.51) and its stub for Python 3.10, with echo",
    "python-3.12": "Triton 24.10 (2.51) and its stub for Python 3.12, with echo",
    "one-interpreter": "Triton 24.10 (2.51), stub and vLLM {version} in one interpreter, as in "
    "NVIDIA's images",
}
_INSTALLED_SERVER: Final = "Triton {release} ({version}), all tests that start a server"


def vllm_releases() -> Iterator[str]:
    """Yield the lines of the table of vLLM's releases."""
    rows = [
        [
            _shown(name, found),
            *(_cell(found["tests"].get(column)) for column in _COLUMNS),
            _fast_paths(found.get("fast_paths")),
            found["python"],
            found["date"],
        ]
        for name, found in _results().items()
        if name not in _SERVERS and not _is_triton(name)
    ]
    yield from table(("vLLM", *_COLUMNS.values(), "fast paths", "Python", "day"), rows)


def server_releases() -> Iterator[str]:
    """Yield the lines of the table of servers."""
    results = _results()
    rows = []
    for name in [*_SERVERS, *sorted(filter(_is_triton, results))]:
        if found := results.get(name):
            shown = _SERVERS.get(name, _INSTALLED_SERVER)
            title = shown.format(release=name.removeprefix("triton-"), version=found["version"])
            rows.append([title, _cell(found["tests"]["server"]), found["python"], found["date"]])
    yield from table(("server", "tests", "Python", "day"), rows)


def _results() -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return read


def _is_triton(name: str) -> bool:
    """Tell whether a line is of a server that was installed (`--triton`)."""
    return name.startswith("triton-") and name not in _SERVERS


def _shown(name: str, found: Mapping[str, Any]) -> str:
    """Return what a row says of its vLLM: the build, of which a release may have two."""
    build = name.removeprefix("vllm-")
    return f"{found['version']}, overlay" if build == "overlay" else build


def _fast_paths(states: Mapping[str, str] | None) -> str:
    """Return how many fast paths were on, and which were off; none are known of an old run.

    The record also has paths that are no more.
    """
    known = {name: reason for name, reason in (states or {}).items() if name in COSTS}
    if not known:
        return "-"
    off = [name for name, reason in known.items() if reason]
    shown = f"{len(known) - len(off)} of {len(known)}"
    return f"{shown}: not {', '.join(f'`{name}`' for name in off)}" if off else shown


def _cell(tests: Mapping[str, Any] | None) -> str:
    """Return how many tests passed, and which did not.

    Where none passed, the engine has not started: no test is to be named.
    """
    if tests is None:
        return "-"
    passed, failed = tests["passed"], tests["failed"]
    shown = f"{passed} of {passed + len(failed)}" if failed else f"{passed}"
    if passed and failed:
        shown += f": not {', '.join(f'`{name}`' for name in failed)}"
    return f"{shown}, {tests['date']}" if "date" in tests else shown
