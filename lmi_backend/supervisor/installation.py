"""Find a tritonserver, its release and what follows from that, and say how to start it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.ipc.environment import LIBRARY_PATH_VARIABLE
from lmi_backend.machine import pip_command
from lmi_backend.repository.writer import write_backend
from lmi_backend.supervisor.run_folder import NOEXEC, is_noexec, shell_problem

# Beside bin/ in NVIDIA's images.
_VERSION_FILE: Final = "TRITON_VERSION"
_FIRST: Final = 2023 * 12 + 9
"""Month of 23.10, which is 2.39.0; each month has a release, and each release a minor version."""
_FIRST_MINOR: Final = 39
_PATCH: Final = (2, 59, 1)
"""The version of 25.07, the one release that has a patch number instead."""
_NUMPY_2: Final = (2, 52, 0)
"""The version of 24.11, the first whose stub takes numpy 2 (python_backend#384)."""
_NUMPY_TWO: Final = 2
_NO_SHELL: Final = (2, 60, 0)
"""The version of 25.08, the first that starts stubs without a shell (python_backend#404)."""

IN_WHEELS: Final = MappingProxyType({"nvidia-pytriton==0.7.0": "2.51.0"})
READ_UNTIL: Final = "2026-09-08"
"""Day of the newest of NVIDIA's bulletins that was read."""
OLDEST_FOR_FLEETS: Final = "26.07"
"""The first release to which none of the bulletins until `READ_UNTIL` applies."""
_SAFE: Final = (2, 71, 0)
BULLETINS: Final = "https://www.nvidia.com/security/"


def release_name(version: str) -> str:
    """Return the release of a version, as 24.10 for 2.51.0; empty if it is none of them."""
    numbers = _numbers(version)
    major, minor, patch = numbers or (0, 0, 0)
    if major != _PATCH[0] or minor < _FIRST_MINOR or (patch and numbers != _PATCH):
        return ""
    year, month = divmod(_FIRST + minor - _FIRST_MINOR + (numbers >= _PATCH), 12)
    return f"{year % 100}.{month + 1:02}"


def is_vulnerable(version: str) -> bool:
    """Return whether a version, as 2.51.0, has known vulnerabilities; False if it is not one."""
    numbers = _numbers(version)
    return bool(numbers) and numbers < _SAFE


def describe(version: str) -> str:
    numbers = _numbers(version)
    if not numbers:
        return f"Triton {version!r:.40}: not a version such as 2.71.0, so nothing is known of it"
    name = _named(numbers)
    if is_vulnerable(version):
        return (
            f"{name} has published vulnerabilities ({BULLETINS}); use {OLDEST_FOR_FLEETS} or later"
        )
    return f"{name}: no vulnerability published until {READ_UNTIL} is open"


def installed_version(binary: Path) -> str:
    """Return the version of a tritonserver that does not run; empty if nothing tells."""
    try:
        return (binary.parent.parent / _VERSION_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        if "pytriton" not in binary.parts:
            return ""
    try:
        wheel = f"nvidia-pytriton=={importlib.metadata.version('nvidia-pytriton')}"
    except importlib.metadata.PackageNotFoundError:
        return ""
    return IN_WHEELS.get(wheel, "")


def numpy_problem(version: str, numpy: str) -> str:
    """Return why a server cannot serve with a release of numpy; empty if it can, or is unknown."""
    numbers = _numbers(version)
    if not numbers or numbers >= _NUMPY_2 or int(numpy.partition(".")[0]) < _NUMPY_TWO:
        return ""
    return (
        f"numpy {numpy} with {_named(numbers)}: the first request would kill the model's "
        "process; a Triton before 24.11 needs `pip install 'numpy<2'`"
    )


def starts_stubs_by_shell(version: str) -> bool:
    """Return whether a server hands the paths of models to a shell; True if that is not known."""
    return _numbers(version) < _NO_SHELL


def _named(numbers: tuple[int, ...]) -> str:
    version = ".".join(map(str, numbers))
    return " ".join(filter(None, ("Triton", release_name(version), f"({version})")))


def _numbers(version: str) -> tuple[int, ...]:
    """Return (2, 51, 0) of 2.51.0 and 2.51.0dev; nothing of what is no version."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![\d.])", version)
    return tuple(map(int, match.groups())) if match else ()


_HELP_SECONDS = 30
_CONTAINER = Path("/opt/tritonserver/bin/tritonserver")
STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class TritonServer:
    binary: Path
    backends: Path
    libraries: tuple[Path, ...] = ()

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the server's environment; the workers get the user's library path back.

        The stub takes its packages from the first python3 on PATH, so ours goes first.
        """
        inherited_path = inherited.get("LD_LIBRARY_PATH", "")
        libraries = [*map(str, self.libraries), inherited_path]
        # The last is where a shell is found without a PATH.
        programs = [str(Path(sys.executable).parent), inherited.get("PATH", ""), os.defpath]
        return {
            **inherited,
            "PATH": os.pathsep.join(filter(None, programs)),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
            LIBRARY_PATH_VARIABLE: inherited_path,
        }

    def takes(self, flag: str) -> bool:
        """Tell whether the server has a flag, such as `--allow-client-shm`.

        Its own `--help` says it. Outside NVIDIA's images nothing tells a server's release before it
        runs, and a build may lack what its release has.
        """
        return flag in self._flags

    @cached_property
    def _flags(self) -> frozenset[str]:
        command, environment = [str(self.binary), "--help"], self.environment(os.environ)
        try:
            done = subprocess.run(  # noqa: S603  the server that is started next
                command, env=environment, capture_output=True, timeout=_HELP_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return frozenset()
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        return frozenset(re.findall(r"--[a-z][a-z0-9-]+", text))


def usable_server(folder: Path, repository: Path | None = None) -> TritonServer:
    """Find the server as `find_server`; raise ConfigurationError if it cannot start our models."""
    server = find_server(folder)
    version = installed_version(server.binary)
    if starts_stubs_by_shell(version):
        if repository and (problem := shell_problem(repository)):
            raise ConfigurationError(f"--model-repository {repository}: {problem}")
        if problem := shell_problem(server.backends):
            raise ConfigurationError(f"{server.backends}: {problem}")
    if problem := numpy_problem(version, importlib.metadata.version("numpy")):
        raise ConfigurationError(problem)
    return server


def find_server(folder: Path) -> TritonServer:
    """Return the server on PATH, of a Triton container, or of the nvidia-pytriton wheel.

    `folder` is where a backend directory may be put together.
    """
    command = shutil.which("tritonserver")
    if command is not None or _CONTAINER.is_file():
        binary = Path(command).resolve() if command is not None else _CONTAINER
        return TritonServer(binary, binary.parent.parent / "backends")
    return _from_wheel(folder)


def _from_wheel(folder: Path) -> TritonServer:
    package = importlib.util.find_spec("pytriton")
    if package is None or package.origin is None:
        raise ConfigurationError(
            "no tritonserver: not on PATH, not in /opt/tritonserver/bin, and nvidia-pytriton is "
            f"not installed; {pip_command('server')} brings one"
        )
    root = Path(package.origin).parent / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = root / "python_backend_stubs" / version / STUB
    if not stub.is_file():
        message = f"nvidia-pytriton has no Python {version} stub; use another Python ({stub})"
        raise ConfigurationError(message)
    if is_noexec(folder):
        raise ConfigurationError(f"{folder}: {NOEXEC}; set TMPDIR to another folder")
    backends = folder / "backends"
    source, target = root / "backends" / "python", backends / "python"
    target.mkdir(parents=True)
    # Copies, next to each other: Triton refuses a link for `backend: "lmi"`, as one that leaves
    # the backend directory.
    for item in (source / "libtriton_python.so", source / "triton_python_backend_utils.py", stub):
        shutil.copy(item, target / item.name)
    (target / STUB).chmod(0o700)
    write_backend(backends)
    libpython = Path(sysconfig.get_config_var("LIBDIR") or sys.prefix)
    bundled = root.parent.parent / "nvidia_pytriton.libs"
    binary = root / "bin" / "tritonserver"
    return TritonServer(binary, backends, (bundled, libpython))
