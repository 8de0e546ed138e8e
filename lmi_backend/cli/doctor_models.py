"""What a model needs: its folder, its plan, its engine in the interpreter of its workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from lmi_backend.cli.doctor_machine import CheckResult
from lmi_backend.cli.folders import model_folder
from lmi_backend.cli.planning import held_devices, served_beside
from lmi_backend.errors import LmiError
from lmi_backend.options import LmiOptions, load_options
from lmi_backend.options.engine_spec import Implementation, implementations
from lmi_backend.options.releases import newer_than_run
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import detect_hardware
from lmi_backend.plan.refusals import age_problem
from lmi_backend.plan.together import plan_together

# torch and an engine over a cold disk.
_IMPORT_SECONDS: Final = 180
_CODE: Final = (
    "import sys\n"
    "module = __import__(sys.argv[1], fromlist=['__version__'])\n"
    # On a line of its own: what a library prints when it is imported may have no end.
    "print('\\nversion', getattr(module, '__version__', 'unknown'))\n"
)
_Import = Callable[[str, str], tuple[bool, str]]


def engine_checks() -> Iterator[Callable[[], CheckResult | None]]:
    """Yield what to look at where no model is named: which engines the interpreter has."""
    asked = os.environ.get("PYTHON_EXECUTABLE")
    python = shutil.which(asked) if asked else sys.executable
    yield partial(_engines, python)


def model_checks(paths: Sequence[Path]) -> Iterator[Callable[[], CheckResult | None]]:
    """Yield what to look at for models that are served side by side; to begin plans them."""
    found: dict[str, LmiOptions | LmiError | OSError] = {}
    for path in paths:
        name = path.resolve().name
        try:
            folder = model_folder(path)
            name = str(folder) if name in found else folder.resolve().name
            found[name] = load_options(folder, os.environ)
        except (LmiError, OSError) as error:
            found[name] = error
    hardware = detect_hardware(os.environ)
    hardware = replace(hardware, allocations=held_devices(hardware))
    readable = {name: each for name, each in found.items() if isinstance(each, LmiOptions)}
    plans = plan_together(readable, hardware, served_beside)
    # Seconds for each, and most models share both.
    import_once = cache(_import)
    for name, options in found.items():
        plan = plans.get(name, options)
        if isinstance(plan, EnginePlan):
            yield partial(_plan, name, plan)
            yield partial(_weights, name, plan)
            yield partial(_engine, name, plan, import_once)
        else:
            yield partial(CheckResult, name, "error", str(plan))


def _plan(name: str, plan: EnginePlan) -> CheckResult:
    devices = "; ".join(",".join(group) or "CPU" for group in plan.parallel.device_groups)
    notes = "; ".join(plan.notes)
    found = f"{plan.what}, {plan.num_workers} worker(s) on {devices}"
    if plan.parallel.mode == "mpi" and not plan.parallel.mpirun:
        return CheckResult(name, "error", f"{found}: no mpirun", "install Open MPI")
    return CheckResult(name, "warning" if notes else "ok", found, notes)


def _weights(name: str, plan: EnginePlan) -> CheckResult:
    what = f"{name}: model"
    folder = Path(plan.config.model)
    if not plan.config.model:
        return CheckResult(what, "ok", "none is needed")
    if not folder.is_absolute():
        return CheckResult(what, "ok", f"{plan.config.model}, fetched when it is loaded")
    unreadable = [path for path in folder.glob("*") if not os.access(path, os.R_OK)]
    if not folder.is_dir() or unreadable:
        shown = ", ".join(map(str, unreadable[:3])) or folder
        return CheckResult(
            what, "error", f"{shown} cannot be read", "as the server's user: chmod it"
        )
    return CheckResult(what, "ok", str(folder))


def _engine(name: str, plan: EnginePlan, imported: _Import) -> CheckResult:
    what = f"{name}: engine"
    implementation = implementations().get(plan.engine)
    library = implementation.library if implementation else ""
    if not library:
        return CheckResult(what, "ok", f"{plan.engine} needs no library")
    is_there, found = imported(plan.launch.python, library)
    if implementation and is_there:
        age = _age(implementation, found)
        shown = f"{library} {found}, {plan.launch.python}"
        return CheckResult(what, "warning" if age else "ok", shown, age)
    advice = f"install it there, or name another interpreter with option.pythonExecutable ({found})"
    return CheckResult(what, "error", f"{plan.launch.python} cannot import {library}", advice)


def _engines(python: str | None) -> CheckResult:
    if python is None:
        found = f"PYTHON_EXECUTABLE={os.environ['PYTHON_EXECUTABLE']} is not an executable file"
        return CheckResult("engines", "error", found)
    known = {each.library: each for each in implementations().values() if each.library}
    tried = {library: _import(python, library) for library in known}
    there = {library: version for library, (is_there, version) in tried.items() if is_there}
    if there:
        versions = ", ".join(f"{library} {version}" for library, version in there.items())
        each = (_age(known[library], version) for library, version in there.items())
        ages = [problem for problem in each if problem]
        return CheckResult(
            "engines", "warning" if ages else "ok", f"{versions}; {python}", "; ".join(ages)
        )
    advice = "install one there, or set PYTHON_EXECUTABLE to an interpreter that has one"
    return CheckResult("engines", "warning", f"none can be imported by {python}", advice)


def _age(implementation: Implementation, version: str) -> str:
    """Say whether a release is too old, or newer than any that was run; else nothing."""
    if problem := age_problem(implementation, version):
        return f"{implementation.library} {version} is {problem}"
    return newer_than_run(implementation, version)


def _import(python: str, library: str) -> tuple[bool, str]:
    """Return whether an interpreter imports a library, and its version or what it says instead."""
    try:
        done = subprocess.run(  # noqa: S603  the interpreter that will run the engine
            [python, "-c", _CODE, library],
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, str(error)
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [""]
    last = next((line for line in reversed(lines) if line.startswith("version ")), lines[-1])
    return done.returncode == 0, last.removeprefix("version ")
