"""Command line and environment of a worker, as pure functions of the plan."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lmi_backend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.plan import EnginePlan

CORES_VARIABLE: Final = "VLLM_CPU_OMP_THREADS_BIND"
"""Cores of vLLM's ranks on the CPU."""
TOKEN_VARIABLE: Final = "LMI_BACKEND_TOKEN"  # noqa: S105  the name of a variable
LIBRARY_PATH_VARIABLE: Final = "LMI_BACKEND_LD_LIBRARY_PATH"
"""What LD_LIBRARY_PATH was before the server's own libraries were put on it."""

_MPI_JOB = ("OMPI_", "PMIX_", "PMI_")
_MPI_SETTINGS = ("OMPI_MCA_", "PMIX_MCA_")


@dataclass(frozen=True)
class WorkerCommand:
    """What to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def worker_command(
    plan: EnginePlan,
    *,
    index: int,
    address: Path,
    token: str,
    environment: Mapping[str, str],
) -> WorkerCommand:
    """Return how to start worker `index`, which is to connect to the socket at `address`.

    `environment` is the stub's; the worker's is a changed copy.
    """
    argv = (plan.python, "-m", "lmi_backend.workers.main", "--connect", str(address))
    return WorkerCommand(argv, _environment(plan, index, address.parent, token, environment))


def link_package(folder: Path) -> None:
    """Make this copy of lmi_backend importable from `folder`, and nothing that lies beside it.

    So the worker's interpreter needs no installed lmi-backend, both ends are the same version,
    and the stub's site-packages stay out of the engine's.
    """
    link = folder / "lmi_backend"
    if not link.is_symlink():
        link.symlink_to(Path(lmi_backend.__file__).resolve().parent)


def _environment(
    plan: EnginePlan, index: int, folder: Path, token: str, inherited: Mapping[str, str]
) -> dict[str, str]:
    kept = {name: value for name, value in inherited.items() if not _is_mpi_job(name)}
    library_path = kept.pop(LIBRARY_PATH_VARIABLE, kept.get("LD_LIBRARY_PATH", ""))
    devices = plan.device_groups[index]
    return (
        {
            # The stub's locale is C; libraries read their own sources as UTF-8.
            "LC_ALL": "C.UTF-8",
            "PYTHONUTF8": "1",
            "PYTHONUNBUFFERED": "1",
            # A forked child would share CUDA and threads with the worker.
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "VLLM_NO_USAGE_STATS": "1",
            # Compiled kernels outlive a worker, unlike what it puts into TMPDIR.
            "TORCHINDUCTOR_CACHE_DIR": f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}",
        }
        | _cores(plan, index)
        | kept
        | {
            "PATH": _join(str(Path(plan.python).parent), kept.get("PATH", "")),
            "PYTHONPATH": _join(str(folder), kept.get("PYTHONPATH", "")),
            "LD_LIBRARY_PATH": library_path,
            # vLLM leaves sockets there when it is killed; the folder goes with the pool.
            "TMPDIR": str(folder),
            # Empty for a worker on the CPU: the devices of the server are not its own.
            "CUDA_VISIBLE_DEVICES": ",".join(devices),
            TOKEN_VARIABLE: token,
        }
        | dict(plan.environment)
    )


def _cores(plan: EnginePlan, index: int) -> dict[str, str]:
    """Return the cores of a worker on the CPU, where several would otherwise fight for all.

    vLLM binds the threads of each of its ranks to a list of cores; lists are divided by "|".
    """
    ranks = plan.workers * plan.world_size
    cores = sorted(os.sched_getaffinity(0))
    if plan.workers == 1 or any(plan.device_groups) or len(cores) < ranks:
        return {}
    each = len(cores) // ranks
    first = index * plan.world_size
    lists = (
        cores[rank * each : (rank + 1) * each] for rank in range(first, first + plan.world_size)
    )
    return {CORES_VARIABLE: "|".join(",".join(map(str, own)) for own in lists)}


def _is_mpi_job(name: str) -> bool:
    """Tell variables that would make the worker think it is a rank of the server's MPI job."""
    return name.startswith(_MPI_JOB) and not name.startswith(_MPI_SETTINGS)


def _join(first: str, rest: str) -> str:
    return os.pathsep.join(part for part in (first, rest) if part)
