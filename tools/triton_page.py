"""docs/triton-releases.md: what later releases of Triton change for this package.

The tables are tests/data/triton_releases.json. A change names a test that shows it on the newest
release that was run, or was read only. A guard names the test that shows that it is enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from compat_page import installed_servers
from named_tests import TESTS, check_test

TABLE: Final = TESTS / "data" / "triton_releases.json"
_READ: Final = "read"
_NOTES: Final = "notes"

_HEAD: Final = """\
# Releases of Triton

*For people who choose a Triton server: what later releases change, and which of that was run.*

[Engines](engines.md#releases-it-has-run-on) says which tests ran on which release. `make serve` and
CI run 24.10, the newest server on a registry (nvidia-pytriton).
"""
_CHANGES: Final = """\
## Changes since 24.10

These are the changes of Triton's `server`, `core`, `python_backend` and `common` that touch what
this package uses. Left out: other backends, ensembles, sequences, calls between models, the OpenAI
front end, GPUs, builds, and Triton's own tests. The release is the first whose branch has the
change. A number in the column *run* is a test that passed on {newest}. *read* was read in the
source only: of `server` up to 2026-08-19, `python_backend` 2026-07-17, `core` 2026-06-09 and
`common` 2026-07-23. *notes* is what the notes of a later release say, and nothing more.
"""
_PROBES: Final = """
A probe of a stub that hangs waits 5 s on one of Triton's HTTP threads from 26.03 on. Streams of
other models on that thread pause. `serve` checks stubs by itself and stops one that hangs.
"""
_GUARDS: Final = """\
## Guards

A guard is code that is there only because of a fault of Triton. A release in the column *until*
does not have the fault; none is known where it is empty. A guard that costs nothing stays on each
release, so that it does not depend on a version. The test shows that the fault does no harm. It
runs in CI on 24.10, and it passed on Triton {all}.
"""

_IN_PROCESS: Final = """
## Triton inside another process

PyPI has wheels of `tritonserver`, the Python bindings of the server in the same process. 2.73.0 was
looked at on 2026-11-26. It has the bindings alone (0.3 MB), and needs `libtritonserver.so` of its
own release: 26.07 lacks one of its 158 functions. It needs Python 3.12, glibc 2.39, GCC 13's
libstdc++ and numpy 1, so it does not import on Debian 12. Nothing here uses it.
"""


def triton_page() -> Iterator[str]:
    """Yield the lines of the page.

    Raises:
        SystemExit: a row names a test or a module that is not there.
    """
    table: dict[str, list[dict[str, str]]] = json.loads(TABLE.read_text(encoding="utf-8"))
    newest = f"Triton {installed_servers()[-1]}"
    tests: list[str] = []
    yield _HEAD
    yield _CHANGES.format(newest=newest)
    yield "| release | change | what is different | touches | what we do | run |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in table["changes"]:
        unseen = _NOTES if row["change"].startswith(_NOTES) else _READ
        run = _number(row, tests) if row["test"] else unseen
        yield _row(*(row[name] for name in ("release", "change", "what", "touches", "needs")), run)
    yield _PROBES
    yield _GUARDS.format(all=" and ".join(installed_servers()))
    yield "| fault | guard | until | where it is on | test |"
    yield "| --- | --- | --- | --- | --- |"
    for row in table["guards"]:
        place = f"`lmi_backend/{_module(row['guard'])}`"
        yield _row(row["fault"], place, row["until"], row["how"], _number(row, tests))
    yield _IN_PROCESS.rstrip()
    yield "\n**Tests**, below `tests/`:\n"
    yield from (f"{number}. `{test}`" for number, test in enumerate(tests, start=1))


def _module(path: str) -> str:
    if not (TESTS.parent / "lmi_backend" / path).is_file():
        message = f"{TABLE.name}: there is no lmi_backend/{path}"
        raise SystemExit(message)
    return path


def _number(row: dict[str, Any], tests: list[str]) -> str:
    """Return the number of a row's test."""
    test = row["test"]
    check_test(test, TABLE.name)
    if test not in tests:
        tests.append(test)
    return str(tests.index(test) + 1)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
