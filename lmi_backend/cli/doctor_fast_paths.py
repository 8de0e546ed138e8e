"""Which fast paths hold in the installed engine, by the workers' interpreter.

That interpreter reads the engine's source and imports nothing of it, so the answer takes a second.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from lmi_backend.cli.doctor_machine import CheckResult
from lmi_backend.ipc.environment import SAFE_PATH_VARIABLE
from lmi_backend.options.engine_spec import Implementation
from lmi_backend.options.releases import NOT_RUN, newest_run
from lmi_backend.options.signature import installed_version
from lmi_backend.options.table.fast_paths import FAST_PATHS
from lmi_backend.plan import EnginePlan
from lmi_backend.pool.command import link_package

_SECONDS: Final = 30


class _FastPath(msgspec.Struct, frozen=True):
    name: str
    purpose: str
    missing: tuple[str, ...]
    """Names that the engine lacks."""
    public_way: str
    cost: str


class _Need(msgspec.Struct, frozen=True):
    name: str
    missing: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.missing)})"


class _Report(msgspec.Struct, frozen=True):
    """What the module of an implementation prints (`Implementation.probes`)."""

    version: str
    fast_paths: tuple[_FastPath, ...]
    needs: tuple[_Need, ...]
    """What no public way replaces."""


@dataclass(frozen=True)
class FastPaths:
    """What an interpreter says of its engine."""

    report: _Report | None
    problem: str = ""
    """Why it says nothing."""

    def count(self) -> tuple[int, int]:
        """Return how many fast paths hold, and how many there are."""
        found = self.report.fast_paths if self.report else ()
        return sum(not fast_path.missing for fast_path in found), len(found)

    def __str__(self) -> str:
        """Return the count as a text."""
        held, total = self.count()
        return f"{held} of {total} fast paths hold" if self.report else NOT_RUN


def fast_paths(implementation: Implementation, python: str) -> FastPaths:
    """Return which fast paths hold in an interpreter's engine; the engine is not imported."""
    return _ask(implementation.probes, python)


@cache
def _ask(module: str, python: str) -> FastPaths:
    with tempfile.TemporaryDirectory(prefix="lmi-doctor-") as folder:
        link_package(Path(folder))
        inherited = os.environ.get("PYTHONPATH", "")
        paths = os.pathsep.join(filter(None, (folder, inherited)))
        try:
            done = subprocess.run(  # noqa: S603  the interpreter that will run the engine
                [python, "-m", module],
                # Python 3.10 looks there first, whatever the variable says.
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths, SAFE_PATH_VARIABLE: "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return FastPaths(None, str(error))
    # What the environment prints at its start comes first.
    last = (done.stdout.strip().splitlines() or [""])[-1]
    try:
        return FastPaths(msgspec.json.decode(last, type=_Report))
    except msgspec.MsgspecError as error:
        lines = done.stderr.strip().splitlines() or [str(error)]
        return FastPaths(None, lines[-1])


def check_fast_paths(
    what: str, implementation: Implementation, python: str, plan: EnginePlan | None = None
) -> CheckResult | None:
    """Return which fast paths hold; None where the interpreter has no engine that has some.

    Args:
        plan: of the model that will run; None if it is not known.
    """
    if not implementation.probes or not installed_version(implementation.name, python):
        return None
    report = fast_paths(implementation, python).report
    if report is None:
        problem = fast_paths(implementation, python).problem
        text = f"{python} does not say which hold: {problem}"
        return CheckResult(what, "warning", text, "they are probed when the engine starts")
    title = f"{implementation.title} {report.version}"
    rows = _rows(report, plan.config.fast_paths if plan else "")
    lacking = {each.name: each for each in report.needs if each.missing}
    if needed := [str(each) for name, each in lacking.items() if _is_needed(name, plan)]:
        newest = newest_run(implementation.name)
        advice = f"install a release that has been run, up to {newest}" if newest else ""
        text = f"{title} lacks what a model needs: {', '.join(needed)}"
        return CheckResult(what, "error", text, advice, rows)
    text = f"{sum(row['state'] == 'held' for row in rows)} of {len(rows)} hold in {title}"
    if lacking and plan is None:
        text += f"; it lacks what some models need: {', '.join(map(str, lacking.values()))}"
    if any(row["missing"] for row in rows):
        advice = "requests are answered without the others, at the cost that is named here"
        return CheckResult(what, "warning", text, advice, rows)
    return CheckResult(what, "ok", text, "", rows)


def _is_needed(name: str, plan: EnginePlan | None) -> bool:
    """Tell whether a model needs what only MPI's ranks or several machines need."""
    if name == "ranks":
        return plan is not None and plan.parallel.mode == "mpi"
    if name == "nodes":
        return plan is not None and plan.parallel.mode == "python" and plan.parallel.nodes > 1
    return True


def _rows(report: _Report, off: str) -> tuple[dict[str, str], ...]:
    """Return the table, a row for each fast path."""
    names = {*off.split(",")}
    return tuple(
        {
            "name": fast_path.name,
            "state": "public" if fast_path.missing or fast_path.name in names else "held",
            "missing": ", ".join(fast_path.missing),
            "off": FAST_PATHS.name if fast_path.name in names else "",
            "purpose": fast_path.purpose,
            "public_way": fast_path.public_way,
            "cost": fast_path.cost,
        }
        for fast_path in report.fast_paths
    )


def row_text(row: dict[str, str]) -> str:
    """Return a row of the table as people read it."""
    head = f"{row['name']:<17}{row['state']}"
    if row["state"] == "held":
        return head
    reason = f"lacks {row['missing']}" if row["missing"] else f"{row['off']} turns it off"
    return f"{head}: {reason}. Instead: {row['public_way']}. Cost: {row['cost']}"
