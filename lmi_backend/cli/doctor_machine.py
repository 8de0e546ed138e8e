"""What every model needs of a machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from lmi_backend import __version__
from lmi_backend.errors import ConfigurationError
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.ipc.shared_memory import SHARED_MEMORY
from lmi_backend.plan.hardware import MASK, detect_hardware
from lmi_backend.plan.ranks import find_mpirun
from lmi_backend.supervisor.installation import STUB, find_server
from lmi_backend.supervisor.send_buffers import ADVICE, ENOUGH
from lmi_backend.supervisor.triton_release import describe, installed_version, numpy_problem
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmi_backend.supervisor.ports import Ports

_PYTHONS: Final = ((3, 10), (3, 13))
_SOCKET_BUFFER: Final = Path("/proc/sys/net/core/wmem_default")
_LITTLE_SHARED: Final = GIB
_LITTLE_DISK: Final = 20 * GIB
_FEW_FILES: Final = 4096
# A Unix socket's path holds 107 bytes; ours is a folder, a process id and a hash below this one.
_LONG_PATH: Final = 40
_SECONDS: Final = 20


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at."""

    what: str
    status: Literal["ok", "warning", "error"]
    """An error keeps models from being served; a warning may, or costs something."""
    found: str
    advice: str = ""
    """What to do; empty if nothing."""


def machine_checks(ports: Ports) -> Iterator[Callable[[], CheckResult]]:
    """Yield what to look at."""
    yield _python
    yield _server
    yield _numpy
    yield _mpirun
    yield _gpus
    yield _shared_memory
    yield _files
    yield _send_buffers
    yield _temporary
    yield partial(_disk, Path(os.environ.get("HF_HOME") or Path.home()))
    yield partial(_ports, ports)


def _python() -> CheckResult:
    found = f"lmi-backend {__version__} on Python {platform.python_version()}, {sys.executable}"
    if _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        return CheckResult("Python", "ok", found)
    return CheckResult("Python", "error", found, "use Python 3.10 to 3.13")


def _server() -> CheckResult:
    with tempfile.TemporaryDirectory() as folder:
        try:
            server = find_server(Path(folder))
        except ConfigurationError as error:
            return CheckResult("tritonserver", "error", str(error))
        stub = server.backends / "python" / STUB
        library = server.backends / "python" / "libtriton_python.so"
        missing = [str(path) for path in (stub, library) if not path.is_file()]
        # It has no --version; its help needs all its libraries.
        help_text = _output([str(server.binary), "--help"], server.environment(os.environ))
    if missing:
        advice = "install the Python backend: its image names end in -py3 or -vllm-python-py3"
        return CheckResult("tritonserver", "error", f"no {' and no '.join(missing)}", advice)
    if "--model-repository" not in help_text:
        advice = "it does not start: install the libraries it names"
        return CheckResult(
            "tritonserver", "error", f"{server.binary}: {help_text.strip()[:300]}", advice
        )
    found = f"{server.binary}: {describe(installed_version(server.binary))}"
    return CheckResult("tritonserver", "ok", found)


def _numpy() -> CheckResult:
    version = importlib.metadata.version("numpy")
    found = f"{version}, in the stub's Python"
    if version.startswith("1."):
        return CheckResult("numpy", "ok", found)
    if server := _server_version():
        problem = numpy_problem(server, version)
        return CheckResult("numpy", "error" if problem else "ok", found, problem)
    advice = (
        "a tritonserver before 24.11 needs `pip install 'numpy<2'`, or its first request kills it"
    )
    return CheckResult("numpy", "warning", found, advice)


def _server_version() -> str:
    """Return the version of the server that would run; empty if there is none, or nothing tells."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return installed_version(find_server(Path(folder)).binary)
        except ConfigurationError:
            return ""


def _mpirun() -> CheckResult:
    path = find_mpirun(os.environ)
    if not path:
        advice = "install Open MPI if a model says engine=MPI or option.rolling_batch=lmi-dist"
        found = "none on PATH, none next to Python"
        return CheckResult("mpirun", "warning", found, advice)
    version = _first_line([path, "--version"])
    if "Open MPI" in version or "OpenRTE" in version:
        return CheckResult("mpirun", "ok", f"{path}, {version}")
    return CheckResult(
        "mpirun", "error", f"{path}: {version}", "install Open MPI; others are not known"
    )


def _gpus() -> CheckResult:
    hardware = detect_hardware(os.environ)
    if hardware.mask_problem:
        return CheckResult("GPUs", "error", hardware.mask_problem, f"unset {MASK}, or correct it")
    if not hardware.devices:
        memory = hardware.host_memory / GIB
        found = f"none; models run on {os.cpu_count()} cores with {memory:.0f} GiB of memory free"
        return CheckResult("GPUs", "ok", found)
    found = f"{len(hardware.devices)} ({', '.join(hardware.devices)})"
    if not hardware.device_memory:
        advice = (
            "neither nvidia-smi nor libnvidia-ml.so.1 tells their memory: install the driver, or "
            "give the container its GPUs with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
        return CheckResult("GPUs", "error", found, advice)
    first = hardware.gpus[0]
    whose = ", which is the host's" if any(gpu.is_unified for gpu in hardware.gpus) else ""
    found += f" of at least {hardware.device_memory / GIB:.0f} GiB{whose}; {first.product}"
    found += f", driver {first.driver or 'unknown'}"
    if hardware.interconnect:
        found += f", joined by {hardware.interconnect}"
    return CheckResult("GPUs", "ok", found)


def _shared_memory() -> CheckResult:
    if not SHARED_MEMORY.is_dir():
        return CheckResult("shared memory", "error", f"{SHARED_MEMORY} is missing", "mount a tmpfs")
    free = shutil.disk_usage(SHARED_MEMORY).free
    found = f"{free / GIB:.1f} GiB free in {SHARED_MEMORY}"
    if free >= _LITTLE_SHARED:
        return CheckResult("shared memory", "ok", found)
    advice = "start the container with --shm-size=2g or --ipc=host, or stubs and ranks fail"
    return CheckResult("shared memory", "warning", found, advice)


def _files() -> CheckResult:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"a process may open {limit}"
    if limit >= _FEW_FILES or limit == resource.RLIM_INFINITY:
        return CheckResult("files", "ok", found)
    advice = f"ulimit -n {most}: each client is a socket of tritonserver"
    return CheckResult("files", "warning", found, advice)


def _send_buffers() -> CheckResult:
    try:
        size = int(_SOCKET_BUFFER.read_text(encoding="ascii"))
    except OSError:
        return CheckResult("HTTP responses", "ok", f"{_SOCKET_BUFFER} cannot be read here")
    found = f"net.core.wmem_default is {size}"
    if size >= ENOUGH:
        return CheckResult("HTTP responses", "ok", found)
    advice = (
        "a tritonserver may lose HTTP responses on a machine without a free core, unless "
        f"`lmi-backend serve` starts it; {ADVICE}"
    )
    return CheckResult("HTTP responses", "warning", found, advice)


def _temporary() -> CheckResult:
    folder = os.environ.get(RUN_DIR_VARIABLE) or tempfile.gettempdir()
    if not os.access(folder, os.W_OK | os.X_OK):
        return CheckResult("temporary files", "error", f"{folder} cannot be written", "set TMPDIR")
    if len(os.fsencode(folder)) > _LONG_PATH:
        advice = f"set TMPDIR to a folder of at most {_LONG_PATH} bytes: sockets are made below it"
        return CheckResult("temporary files", "error", folder, advice)
    return CheckResult("temporary files", "ok", folder)


def _disk(folder: Path) -> CheckResult:
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.0f} GiB free at {folder}, where models from the hub go"
    if free >= _LITTLE_DISK:
        return CheckResult("disk", "ok", found)
    return CheckResult("disk", "warning", found, "make room, or set HF_HOME to a larger disk")


def _ports(ports: Ports) -> CheckResult:
    try:
        ports.check({})
    except ConfigurationError as error:
        return CheckResult("ports", "error", str(error))
    return CheckResult("ports", "ok", f"{ports.http}, {ports.grpc} and {ports.metrics} are free")


def _first_line(command: list[str]) -> str:
    return _output(command).strip().partition("\n")[0]


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(  # noqa: S603  programs that only speak of themselves
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout + done.stderr
