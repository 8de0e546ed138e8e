"""`lmi-backend doctor`: look at a machine, and say what to do before something fails on it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final, Literal

from lmi_backend.cli.arguments import PORTS
from lmi_backend.cli.check import examine
from lmi_backend.cli.folders import find_models
from lmi_backend.cli.planning import Machine, devices_of, held_devices
from lmi_backend.errors import ConfigurationError
from lmi_backend.front_end_settings import PORT
from lmi_backend.ipc.shared_memory import SHARED_MEMORY
from lmi_backend.machine import check_limits
from lmi_backend.options.model_store import DEFAULT_STORE
from lmi_backend.options.releases import newer_than_run
from lmi_backend.options.spec import Implementation, implementations
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import MASK, Hardware, detect_hardware
from lmi_backend.plan.refusals import age_problem
from lmi_backend.printable import GIB
from lmi_backend.redaction import Redactor
from lmi_backend.supervisor.installation import (
    OLDEST_FOR_FLEETS,
    STUB,
    describe,
    installed_version,
    is_vulnerable,
    usable_server,
)
from lmi_backend.supervisor.ports import Ports, check_free
from lmi_backend.supervisor.run_folder import check_folder

_MARKS: Final = {"ok": "ok", "warning": "!!", "error": "XX"}
_LITTLE_SHARED: Final = GIB
_LITTLE_DISK: Final = 20 * GIB
# torch and an engine over a cold disk.
_IMPORT_SECONDS: Final = 180
_CODE: Final = (
    "import sys\n"
    "module = __import__(sys.argv[1], fromlist=['__version__'])\n"
    # On a line of its own: what a library prints when it is imported may have no end.
    "print('\\nversion', getattr(module, '__version__', 'unknown'))\n"
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="look at this machine, and say what to do",
        description="Look whether this machine can serve: tritonserver and its Python, ports, the "
        "engines, GPUs and their driver, shared memory, disk; and each PATH's model.",
        examples=("lmi-backend doctor", "lmi-backend doctor llama --json"),
        statuses={0: "nothing would fail", 1: "something would fail"},
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="LMI folders to look at as well")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_doctor)


@dataclass(frozen=True)
class CheckResult:
    what: str
    status: Literal["ok", "warning", "error"]
    """An error keeps models from being served; a warning may, or costs something."""
    found: str
    advice: str = ""


def _doctor(arguments: argparse.Namespace) -> int:
    redact = Redactor(os.environ)
    results = []
    for outcome in _checks(arguments):
        results.append(result := CheckResult(**redact.each(asdict(outcome))))
        if not arguments.json:
            _show(result)
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(each) for each in results], indent=2) + "\n")
    return int(any(result.status == "error" for result in results))


def _show(result: CheckResult) -> None:
    """Write a result as it is made: to load an engine takes its time."""
    head = f"{_MARKS[result.status]}  {result.what:<15} "
    sys.stdout.write(f"{head}{result.found}\n")
    if result.advice:
        sys.stdout.write(f"{'':<{len(head)}}→ {result.advice}\n")
    sys.stdout.flush()


def _checks(arguments: argparse.Namespace) -> Iterator[CheckResult]:
    yield _result("tritonserver", _server)
    yield _result("limits", _limits)
    yield _result("ports", _ports)
    hardware = detect_hardware(os.environ)
    yield _result("GPUs", lambda: gpus(hardware))
    yield _result("shared memory", shared_memory)
    yield _result("disk", _disk)
    yield from (
        _models(arguments.paths, hardware) if arguments.paths else [_result("engines", _engines)]
    )


def _result(what: str, look: Callable[[], tuple[str, str]]) -> CheckResult:
    """Return what a look finds: advice makes it a warning, a ConfigurationError an error."""
    try:
        text, advice = look()
    except ConfigurationError as error:
        text, _, advice = str(error).partition("\n")
        return CheckResult(what, "error", text, advice)
    return CheckResult(what, "warning" if advice else "ok", text, advice)


def _server() -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        server = usable_server(Path(folder))
        version = installed_version(server.binary)
        installed = f"{server.binary}: {describe(version)}"
        parts = (server.backends / "python" / name for name in (STUB, "libtriton_python.so"))
        if missing := [str(path) for path in parts if not path.is_file()]:
            advice = "install the Python backend: its image names end in -py3 or -vllm-python-py3"
            raise ConfigurationError(f"no {' and no '.join(missing)}", advice)
        # It has no --version; its help needs all its libraries.
        if not server.takes("--model-repository"):
            advice = f"run `{server.binary} --help`: it names the libraries that are missing"
            raise ConfigurationError(f"{installed}; it does not start", advice)
    return installed, f"fleets need {OLDEST_FOR_FLEETS} or later" if is_vulnerable(version) else ""


def _limits() -> tuple[str, str]:
    check_limits()
    check_folder()
    return "enough threads and open files, and a folder for temporary ones", ""


def _ports() -> tuple[str, str]:
    try:
        Ports("127.0.0.1", **PORTS).check({})
        check_free("--port", "--host", "127.0.0.1", PORT)
    except ConfigurationError as error:
        return "one of serve's is in use", str(error)
    return f"{', '.join(map(str, (PORT, *PORTS.values())))} are free", ""


def gpus(hardware: Hardware) -> tuple[str, str]:
    if hardware.mask_problem:
        raise ConfigurationError(hardware.mask_problem, f"unset {MASK}, or correct it")
    if not hardware.devices:
        memory = hardware.host_memory / GIB
        return f"none; models run on {os.cpu_count()} cores with {memory:.0f} GiB free", ""
    text = f"{len(hardware.devices)} ({', '.join(hardware.devices)})"
    if not hardware.device_memory:
        raise ConfigurationError(
            text,
            "neither nvidia-smi nor libnvidia-ml.so.1 tells their memory: install the driver, or "
            "give the container its GPUs with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    first = hardware.gpus[0]
    whose = ", which is the host's" if any(gpu.is_unified for gpu in hardware.gpus) else ""
    text += f" of at least {hardware.device_memory / GIB:.0f} GiB{whose}; {first.product}"
    text += f", driver {first.driver or 'unknown'}"
    return text, ""


def shared_memory() -> tuple[str, str]:
    if not SHARED_MEMORY.is_dir():
        raise ConfigurationError(f"{SHARED_MEMORY} is missing", "mount a tmpfs")
    free = shutil.disk_usage(SHARED_MEMORY).free
    advice = "start the container with --shm-size=2g or --ipc=host, or stubs and ranks fail"
    return f"{free / GIB:.1f} GiB free in {SHARED_MEMORY}", advice if free < _LITTLE_SHARED else ""


def _disk() -> tuple[str, str]:
    folder = Path(os.environ.get("HF_HOME") or Path.home())
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    free = shutil.disk_usage(there).free
    advice = "make room, or set HF_HOME to a larger disk" if free < _LITTLE_DISK else ""
    return f"{free / GIB:.0f} GiB free at {there}, where models from the hub go", advice


def _models(paths: Sequence[str], hardware: Hardware) -> Iterator[CheckResult]:
    try:
        models = find_models(paths, DEFAULT_STORE)
    except ConfigurationError as error:
        yield CheckResult("models", "error", str(error))
        return
    hardware = replace(hardware, allocations=held_devices(hardware))
    for each in examine(models, Machine(), hardware):
        if each.plan is None:
            yield CheckResult(each.name, "error", "; ".join(each.problems))
        else:
            yield _result(each.name, partial(_plan, each.plan))
            yield _result(f"{each.name}: engine", partial(_engine, each.plan))


def _plan(plan: EnginePlan) -> tuple[str, str]:
    text = f"{plan.what}, {plan.num_workers} worker(s) on {devices_of(plan)}"
    folder = Path(plan.config.model)
    if folder.is_absolute() and not folder.is_dir():
        raise ConfigurationError(f"{folder} cannot be read", "as the server's user: chmod")
    return text, "; ".join(plan.notes)


def _engine(plan: EnginePlan) -> tuple[str, str]:
    python, implementation = plan.launch.python, implementations().get(plan.engine)
    if implementation is None or not implementation.library:
        return f"{plan.engine} needs no library", ""
    version, problem = import_in(python, implementation.library)
    if not version:
        advice = "install it there, or name another interpreter with option.pythonExecutable"
        text = f"{python} cannot import {implementation.library}"
        raise ConfigurationError(text, f"{advice} ({problem})")
    return f"{implementation.library} {version}, {python}", _age(implementation, version)


def _engines() -> tuple[str, str]:
    """Look which engines an interpreter has, where no model is named."""
    wanted = os.environ.get("PYTHON_EXECUTABLE")
    python = shutil.which(wanted) if wanted else sys.executable
    if python is None:
        raise ConfigurationError(f"PYTHON_EXECUTABLE={wanted} is not an executable file")
    by_library = {each.library: each for each in implementations().values() if each.library}
    there = {name: version for name in by_library if (version := import_in(python, name)[0])}
    if not there:
        advice = "install one there, or set PYTHON_EXECUTABLE to an interpreter that has one"
        return f"none can be imported by {python}", advice
    versions = ", ".join(f"{name} {version}" for name, version in there.items())
    ages = filter(None, (_age(by_library[name], there[name]) for name in there))
    return f"{versions}; {python}", "; ".join(ages)


def _age(implementation: Implementation, version: str) -> str:
    if problem := age_problem(implementation, version):
        return f"{implementation.library} {version} is {problem}"
    return newer_than_run(implementation, version)


@cache  # Seconds for each, and most models share both.
def import_in(python: str, library: str) -> tuple[str, str]:
    """Return the version of a library that an interpreter imports, else what it says instead."""
    try:
        done = subprocess.run(  # noqa: S603  the interpreter that will run the engine
            [python, "-c", _CODE, library],
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    if done.returncode:
        return "", (done.stderr.strip().splitlines() or [""])[-1]
    versions = [line for line in done.stdout.splitlines() if line.startswith("version ")]
    return versions[-1].removeprefix("version ") if versions else "unknown", ""
