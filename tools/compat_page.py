"""The section of docs/engines.md that says on which releases the tests have run, and how.

`make compat` writes tests/data/compat.json, which this reads; nothing here runs a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from named_tests import TESTS

from lmi_backend.engines.vllm.fast_paths import COSTS

RESULTS: Final = TESTS / "data" / "compat.json"
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

_ABOUT: Final = """\
`make compat` runs the contract tests on these releases, on a CPU and outside CI. Each release has
an environment of its own, with the packages of its time. The last build of a minor version runs
all tests. Each build runs a short set: the engine starts, answers each dialect whole and streamed,
resumes streams after a crash, cancels, applies an adapter and calls a tool.

A cell has the number of tests that passed, or how many of all did; `-` was not run. A cell with a
day is of an earlier run. The column *fast paths* says how many of the engine's
[fast paths](#fast-paths-inside-vllm) were on in the last run, and names those that were off. It
leaves out those that the run did not have yet, and those that are no more.

On a CPU, **0.18** starts only with `libtcmalloc` and `libiomp5` in `LD_PRELOAD`. 0.18.0 did not
have them here. On a CPU, **0.22** did not start with LoRA when it ran: it pins memory, and the
registry's torch needs a GPU for that. The engine turns this off since then: 0.23 ran with it. On
2026-11-27 0.22.1 started with it, and passed the first 9 of 14 tests; the others had no time.

The registry's build of **0.12.0** does not know that it is for a CPU, and vLLM does not start. The
tests write the metadata that vLLM looks for (`tools/overlay.py`).

An **overlay** is the Python of a release that has no CPU build yet over the libraries of the newest
one (`tools/overlay.py`). CI runs its short set when the registry has a release newer than these.
"""
_INSTALLED: Final = """\
## The release that is installed

`check` and `plan` accept what the vLLM in the workers' interpreter has. They read its files as
syntax trees, in 0.2 seconds and without an import. They read arguments and their values, the
arguments of its HTTP server, its parsers, and the models that it has no longer. Without an
installed vLLM they use the record in `lmi_backend/options/signatures/vllm.json`.

- A value that the release does not have is refused, and the message lists those it has. `medusa` is
  a speculative method of 0.32 and none of 0.33.
- Plugins of vLLM may add quantisations, types of the KV cache, load formats and parsers. One that
  the release does not have is refused where no installed package has an entry point of vLLM's
  (`vllm.general_plugins` and the like). Where one has, where code of yours runs, or where nothing
  is installed, it is a note.
- Arguments of vLLM's HTTP server are options too, such as `option.reasoning_effort_map` since 0.33;
  those of its listener (`host`, `port`, …) are refused. The application's arguments are a class of
  their own in vLLM; a release without that class takes those of the option table only.
- Since 0.33 each `--enable-x` has a `--disable-x`, so `option.disable_prefix_caching=true` and
  `SM_VLLM_DISABLE_PREFIX_CACHING` set `option.enable_prefix_caching=false` there.
- If the release is newer than any in the table above, `check`, `plan`, `doctor` and the worker's
  log say so. They name the newest that was run.
"""
_TRITON: Final = """\
**Before 24.06** Triton lets only decoupled models answer as ours do: `NAME` itself works, and its
alias models of one response (`raw`, `infer` and others, [tensors.md](tensors.md)) fail each request
with an error of Triton. **After 24.10** no registry has a server for a machine without a container.
The servers of those rows were built from Triton's public sources, outside this tree, for a CPU and
without tracing. `make compat COMPAT="--triton FOLDER"` runs the tests on any server that is
installed. On 25.07 and 26.07 it ran in pieces, with vLLM and with the echo engine, and nothing
failed that passes on 24.10. Of the tests of each server three are skipped: `make pictures` draws
them. On 26.07, 30 more tests, of MPI ranks, hosts, replicas and killed engines, passed on the same
day. Three of compressed bodies were mended after their run.

**25.07** was seen to do as 24.10 does: a model whose stub is dead is READY, clients may register
memory, and a weight such as `1e999` in `Accept-Encoding` stops the server. As on 26.07 its log is
on standard output. Only a stub for Python 3.11.2 was built for it. Two tests had no turn there: a
server that is killed, and processes that hang, under chats of vLLM.

On 26.07 the steps of [a Triton fleet](triton-fleet.md) ran as written, from the wheel to the drain.
That was with a stub for Python 3.12.1 and numpy 2.5.5. [Releases of Triton](triton-releases.md)
says what later ones change.
"""


def compat_section() -> Iterator[str]:
    """Yield the lines of the section."""
    results: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    failed: list[str] = []
    yield "## Releases it has run on\n"
    yield _ABOUT
    yield f"| vLLM | {' | '.join(_COLUMNS.values())} | fast paths | Python | day |"
    yield "| --- " * (len(_COLUMNS) + 4) + "|"
    for name, found in results.items():
        if name not in _SERVERS and not _is_triton(name):
            cells = [_cell(found["tests"].get(column), failed) for column in _COLUMNS]
            cells.append(_fast_paths(found.get("fast_paths")))
            yield _row(_shown(name, found), *cells, found["python"], found["date"])
    yield ""
    yield "| server | tests | Python | day |"
    yield "| --- | --- | --- | --- |"
    for name in [*_SERVERS, *sorted(filter(_is_triton, results))]:
        if name in results:
            found = results[name]
            cell = _cell(found["tests"].get("server"), failed)
            shown = _SERVERS.get(name, _INSTALLED_SERVER)
            title = shown.format(release=name.removeprefix("triton-"), version=found["version"])
            yield _row(title, cell, found["python"], found["date"])
    if failed:
        yield "\n**Failed:**\n"
        yield from (f"- {number}: `{test}`" for number, test in enumerate(failed, start=1))
    yield f"\n{_TRITON}"
    yield _INSTALLED


def installed_servers() -> list[str]:
    """Return the releases of installed servers on which the tests have run, the newest last."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return sorted(name.removeprefix("triton-") for name in results if _is_triton(name))


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


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(tests: Mapping[str, Any] | None, failed: list[str]) -> str:
    """Return how many tests passed; collect those that failed, and name them by numbers.

    Where none passed, the engine has not started: no test is to be named.
    """
    if tests is None:
        return "-"
    day = f", {tests['date']}" if "date" in tests else ""
    passed, names = tests["passed"], tests["failed"]
    if not names:
        return f"{passed}{day}"
    if not passed:
        return f"0 of {len(names)}{day}"
    failed += [name for name in names if name not in failed]
    numbers = ", ".join(str(failed.index(name) + 1) for name in names)
    return f"{passed} of {passed + len(names)} ({numbers}){day}"
