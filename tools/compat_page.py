"""The section of docs/engines.md that says on which releases the tests have run, and how.

`make compat` writes tests/data/compat.json, which this reads; nothing here runs a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from named_tests import TESTS

RESULTS: Final = TESTS / "data" / "compat.json"
_COLUMNS: Final = {
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

_TRITON: Final = """\
**Before 24.06** Triton lets only decoupled models answer as ours do: `NAME` itself works, and its
alias models of one response (`raw`, `infer` and others, [tensors.md](tensors.md)) end each request
in an error of Triton's. **After 24.10** none has been run, because none can be had without a
container. Written for them, as their sources have it, and unrun:

- 25.12 calls a model whose stub is dead not ready. 26.03 asks the model itself (`is_ready`); ours
  says whether a worker takes requests.
- 26.05 keeps clients' shared memory off unless `--allow-client-shm=true` is given; what a load
  warns of follows that. It refuses a header forwarded as a parameter of its own (`timeout`,
  `priority`, `sequence_id`, `triton_…`); `serve` forwards none.
- The stub of 26.01 may crash at its end where a model has metrics (server#8662): the workers have
  been stopped by then. The repair (python_backend#429) is in no release up to 26.07.
"""


def compat_section() -> Iterator[str]:
    """Yield the lines of the section."""
    results: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    failed: list[str] = []
    yield "## Releases it has run on\n"
    yield "`make compat` runs the contract tests on them, each in an environment of its own, on a"
    yield "CPU, outside CI. A cell has the number of tests that passed, or how many of all did.\n"
    yield f"| vLLM | {' | '.join(_COLUMNS.values())} | Python | day |"
    yield "| --- " * (len(_COLUMNS) + 3) + "|"
    for name, found in results.items():
        if name not in _SERVERS:
            cells = [_cell(found["tests"].get(column), failed) for column in _COLUMNS]
            yield _row(found["version"], *cells, found["python"], found["date"])
    yield ""
    yield "| server | tests | Python | day |"
    yield "| --- | --- | --- | --- |"
    for name, shown in _SERVERS.items():
        if name in results:
            found = results[name]
            cell = _cell(found["tests"].get("server"), failed)
            title = shown.format(version=found["version"])
            yield _row(title, cell, found["python"], found["date"])
    if failed:
        yield "\n**Failed:**\n"
        yield from (f"- {number}: `{test}`" for number, test in enumerate(failed, start=1))
    yield f"\n{_TRITON}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(tests: Mapping[str, Any] | None, failed: list[str]) -> str:
    """Return how many tests passed; collect those that failed, and name them by numbers."""
    if tests is None:
        return "*not run*"
    passed, names = tests["passed"], tests["failed"]
    if not names:
        return str(passed)
    failed += [name for name in names if name not in failed]
    numbers = ", ".join(str(failed.index(name) + 1) for name in names)
    return f"{passed} of {passed + len(names)} ({numbers})"
