"""A folder is a process: which it runs in, and what it may import there.

The modules of the same processes are imported one after the other in a clean child, which tells
what came with each; and in another child the last one first, for some ends a circle of imports.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.run.places import ROOT

PACKAGE = ROOT / "lmi_backend"
PROVIDED = "worker/handlers/provided"

# A process, and the libraries that are there besides Python's own.
PROCESSES = {
    "command line": {"msgspec", "psutil"},
    "auto-complete": set(),
    # The last one only where requests are traced.
    "stub": {"msgspec", "numpy", "triton_python_backend_utils", "opentelemetry.sdk.trace.export"},
    "front end": {"aiohttp", "backports", "httptools", "msgspec", "uvicorn", "uvloop"},
    "worker": {"msgspec"},
    "vLLM's worker": {"msgspec", "psutil", "vllm", "torch", "aiohttp"},
    "Transformers' worker": {"msgspec", "torch", "transformers", "peft"},
    "TensorRT-LLM's worker": {"msgspec", "tensorrt_llm"},
    "handler's worker": {"msgspec", "numpy"},
}
WORKERS = tuple(name for name in PROCESSES if name.endswith("worker"))
TALKS = ("command line", "front end", "stub", *WORKERS)
ALL = tuple(PROCESSES)

# Processes, and the folders and modules that run in all of them, as what is below these unless it
# is named. What nobody names runs everywhere.
ROWS = {
    ("command line",): "api cli supervisor deploy migrate",
    ("front end",): "frontend",
    ("stub",): "triton serving endpoint/client endpoint/buffered endpoint/connection "
    "endpoint/server endpoint/state",
    ("auto-complete", "stub"): "triton/hand_written",
    ("front end", "stub"): "resume",
    # `lmi-backend join` has the workers of a further machine.
    ("command line", "stub"): "pool",
    ("command line", "front end"): "front_end_settings",
    ("command line", "front end", "stub"): "endpoint pool/load_failure",
    ("command line", "front end", "stub", "vLLM's worker"): "shares",
    WORKERS: "worker engines",
    ("handler's worker",): PROVIDED,
    ("vLLM's worker",): "engines/vllm",
    ("Transformers' worker",): "engines/transformers",
    ("TensorRT-LLM's worker",): "engines/trtllm",
    TALKS: "ipc clients generation json_text tokenization",
}
FOLDERS = {name: processes for processes, names in ROWS.items() for name in names.split()}
FOLDERS[""] = ALL

PROBE = """
import importlib, json, os, sys, threading
# Most modules need these, and each child would read them again.
import asyncio, concurrent.futures, dataclasses, http.client, logging, subprocess, urllib.request

sys.path[:0], places = json.load(sys.stdin)
ours = ("lmi_backend", "djl_python")
for modules, libraries in places:
    if os.fork():
        os.wait()
        continue
    for name in libraries:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            pass
    known = {name.partition(".")[0] for name in sys.modules} | sys.stdlib_module_names
    for module in modules:
        before = {*sys.modules}, dict(os.environ), os.listdir("/proc/self/task")
        missing = ""
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = error.name.partition(".")[0]
        came = sys.modules.keys() - before[0]
        loaded = [name for name in came if name.startswith(ours)]
        # A package that is only on the way to a module says nothing.
        loaded = [name for name in loaded if not any(f"{name}." in other for other in loaded)]
        others = {name.partition(".")[0] for name in came} - known - {*ours}
        report = {"loaded": loaded, "others": [*others], "missing": missing}
        report["is_same"] = before[1:] == (dict(os.environ), os.listdir("/proc/self/task"))
        print(json.dumps([module, report]), flush=True)
    os._exit(0)
"""


def name_of(file: Path) -> str:
    """Return the path of a module below the package, without its suffix."""
    place = file.relative_to(PACKAGE).with_suffix("")
    return str(place.parent if place.name == "__init__" else place)


def imported_as(name: str) -> str:
    """Return a module's name in an import; provided code is imported as LMI's."""
    below = (
        name.removeprefix(f"{PROVIDED}/") if name.startswith(PROVIDED) else f"lmi_backend/{name}"
    )
    return below.removesuffix("/.").replace("/", ".")


def row_of(name: str) -> str:
    """Return the row of the table that speaks of a module."""
    parts = name.split("/")
    rows = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((row for row in rows if row in FOLDERS), "")


def allowed(row: str) -> set[str]:
    """Return the libraries that all processes of a row have."""
    return set.intersection(*(set(PROCESSES[process]) for process in FOLDERS[row]))


MODULES = {
    imported_as(name): row_of(name)
    for file in sorted(PACKAGE.rglob("*.py"))
    if (name := name_of(file)) not in (".", PROVIDED)
}


Report = tuple[str, dict[str, Any]]
"""A module, and what came with it."""


@pytest.fixture(scope="module")
def seen() -> list[Report]:
    """Import every module, those of the same processes beside the libraries that all have."""
    by_processes: dict[tuple[str, ...], list[str]] = {}
    for name, row in MODULES.items():
        by_processes.setdefault(FOLDERS[row], []).append(name)
    places = [(names, sorted(allowed(MODULES[names[0]]))) for names in by_processes.values()]
    backwards = [(names[::-1], libraries) for names, libraries in places]
    # Side by side: to import everything is seconds of work.
    with ThreadPoolExecutor() as pool:
        return [each for part in pool.map(probe, (places, backwards)) for each in part]


def probe(places: list[tuple[list[str], list[str]]]) -> list[Report]:
    path = [str(ROOT), str(PACKAGE / PROVIDED), str(ROOT / "tests" / "fakes" / "triton")]
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROBE],
        input=json.dumps([path, places]),
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_every_row_has_its_folder() -> None:
    assert MODULES.keys() > {"lmi_backend.cli.main", "djl_python.inputs"}
    for row in FOLDERS:
        assert (PACKAGE / row).is_dir() or (PACKAGE / f"{row}.py").is_file(), row
    assert {process for row in FOLDERS.values() for process in row} == {*PROCESSES}


def test_a_module_imports_what_its_processes_have(seen: list[Report]) -> None:
    assert {*MODULES.values()} == {*FOLDERS}
    assert sorted(name for name, _ in seen) == sorted([*MODULES] * 2)
    assert [
        (name, report["missing"])
        for name, report in seen
        if report["missing"] not in {"", *allowed(MODULES[name])}
    ] == []
    assert [(name, report["others"]) for name, report in seen if report["others"]] == []


def test_no_module_changes_the_environment_or_starts_a_thread(seen: list[Report]) -> None:
    assert [name for name, report in seen if not report["is_same"]] == []


def test_a_module_loads_modules_of_its_processes_alone(seen: list[Report]) -> None:
    assert [
        f"{name} loads {each}"
        for name, report in seen
        for each in report["loaded"]
        if not is_there(MODULES[each], MODULES[name])
    ] == []


def is_there(row: str, asks: str) -> bool:
    """Tell whether a row's modules are in every process of the row that asks for them."""
    return {*FOLDERS[asks]} <= {*FOLDERS[row]}


def test_an_alias_model_brings_nothing_of_what_starts_workers() -> None:
    ((_, report),) = probe([(["lmi_backend.triton.model"], sorted(allowed("triton")))])
    assert "lmi_backend.endpoint.client" in report["loaded"]
    not_its = ("plan", "pool", "sizing", "options", "fetch")
    assert not [name for name in report["loaded"] if name.split(".")[1] in not_its]


def test_the_package_alone_imports_none_of_its_parts() -> None:
    ((_, report),) = probe([(["lmi_backend"], [])])
    assert report["loaded"] == ["lmi_backend"]
