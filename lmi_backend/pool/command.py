"""Command line and environment of a worker, as pure functions of the plan and its context."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lmi_backend
from lmi_backend.files import kernel_cache
from lmi_backend.ipc.environment import (
    GROUP_VARIABLE,
    LIBRARY_PATH_VARIABLE,
    SAFE_PATH_VARIABLE,
    TOKEN_VARIABLE,
)
from lmi_backend.options.spec import implementations
from lmi_backend.plan.arguments import TRANSFERS
from lmi_backend.repository.restricted_apis import KEY_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmi_backend.plan import EnginePlan
    from lmi_backend.plan.engine_plan import Parallel

CORES_VARIABLE: Final = "VLLM_CPU_OMP_THREADS_BIND"
"""Cores of vLLM's ranks on the CPU."""


@dataclass(frozen=True)
class LaunchContext:
    index: int
    """Its number among the workers of the plan."""
    folder: Path
    """Private folder; the worker imports lmi_backend from there."""
    address: str
    """Where its ranks connect to: a Unix socket, or host:port."""
    token: str
    master_port: int = 0
    """Where its ranks meet, if it has several."""
    number: int = 0
    """Its number among all launches of this process."""

    @property
    def group(self) -> str:
        return f"{self.folder.name}-{self.index}-{self.number}"


@dataclass(frozen=True)
class WorkerCommand:
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    secrets: tuple[tuple[str, str], ...] = ()
    """Names and values that its lines must not show, in addition to those that its environment
    names so."""


def worker_command(
    plan: EnginePlan, context: LaunchContext, environment: Mapping[str, str]
) -> WorkerCommand:
    argv: tuple[str, ...] = (
        plan.launch.python,
        "-m",
        "lmi_backend.worker.main",
        "--connect",
        context.address,
    )
    own = _own_environment(plan, context, environment)
    if plan.parallel.mode == "mpi":
        argv = (*mpirun(plan.parallel, sorted(own.keys() - {"TMPDIR"})), *argv)
    return WorkerCommand(argv, _inherited(environment) | own, tuple(plan.secrets()))


def link_package(folder: Path) -> None:
    """Make this copy of lmi_backend importable from `folder`, and nothing that lies next to it.

    So the worker's interpreter needs no installed lmi-backend, both sides are the same version,
    and the stub's site-packages stay out of the engine's.
    """
    (folder / "lmi_backend").symlink_to(Path(lmi_backend.__file__).resolve().parent)


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in environment.items() if not is_job_variable(name)}
    for name in (LIBRARY_PATH_VARIABLE, *KEY_VARIABLES):
        own.pop(name, None)
    return own


def _own_environment(
    plan: EnginePlan, context: LaunchContext, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return what differs from the stub's environment; ranks on other nodes get it too."""
    implementation = implementations().get(plan.engine)
    core_variables = implementation.core_variables if implementation else None
    is_neuron = implementation is not None and implementation.device == "nc"
    library_path = inherited.get("LD_LIBRARY_PATH", "")
    defaults = {
        # The stub's locale is C; libraries read their own sources as UTF-8.
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        # A forked child would share CUDA and threads with the worker.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        # Compiled kernels outlive a worker, unlike what it puts into TMPDIR.
        "TORCHINDUCTOR_CACHE_DIR": str(kernel_cache()),
        # PyTorch puts those into TMPDIR: each worker compiled one for 10 s, kernels cached or not.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }
    if any(plan.parallel.device_groups) and "CUDA_VISIBLE_DEVICES" not in inherited:
        # The plan counts as the driver does; CUDA alone would count the fastest first.
        defaults["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return (
        {name: inherited.get(name, value) for name, value in defaults.items()}
        | ({} if is_neuron else _cores(plan.parallel, context.index, inherited))
        | {
            "PATH": _join(str(Path(plan.launch.python).parent), inherited.get("PATH", "")),
            # `-m` would look for lmi_backend in the current folder first, whoever may write there.
            SAFE_PATH_VARIABLE: "1",
            "PYTHONPATH": _join(str(context.folder), inherited.get("PYTHONPATH", "")),
            "LD_LIBRARY_PATH": inherited.get(LIBRARY_PATH_VARIABLE, library_path),
            # vLLM leaves sockets there when it is killed; the folder goes with the pool.
            "TMPDIR": str(context.folder),
            # Empty for a worker on the CPU: the devices of the server are not its own.
            "CUDA_VISIBLE_DEVICES": ",".join(plan.parallel.device_groups[context.index]),
            TOKEN_VARIABLE: context.token,
        }
        | _open_mpi(plan, context, inherited)
        | _own_ports(plan, context.index, inherited)
        | _meeting_place(plan, context)
        | (
            core_variables(context.index, plan.parallel.tensor_parallel_degree)
            if core_variables
            else {}
        )
        | dict(plan.launch.environment)
        | _own_ports(plan, context.index, plan.launch.environment, is_default=False)
    )


def _cores(parallel: Parallel, index: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the cores of each rank on the CPU; several would otherwise fight for all.

    vLLM binds the threads of each of its ranks to a list of cores; lists are divided by "|".
    """
    ranks = parallel.workers * parallel.world_size // parallel.nodes
    cores = sorted(os.sched_getaffinity(0))
    if CORES_VARIABLE in inherited:
        return {CORES_VARIABLE: inherited[CORES_VARIABLE]}
    if ranks == 1 or parallel.hosts or any(parallel.device_groups) or len(cores) < ranks:
        return {}
    each = len(cores) // ranks
    first = index * parallel.world_size
    lists = (
        cores[rank * each : (rank + 1) * each] for rank in range(first, first + parallel.world_size)
    )
    return {CORES_VARIABLE: "|".join(",".join(map(str, own)) for own in lists)}


def _meeting_place(plan: EnginePlan, context: LaunchContext) -> dict[str, str]:
    """Return where ranks find each other, or the first machine of those that an engine spans."""
    if plan.parallel.mode == "mpi":
        host = plan.parallel.hosts[0] if plan.parallel.hosts else "127.0.0.1"
        port = str(context.master_port)
        return {"MASTER_ADDR": host, "MASTER_PORT": port, GROUP_VARIABLE: context.group}
    arguments = plan.config.arguments
    return {"MASTER_ADDR": str(arguments["master_addr"])} if "nnodes" in arguments else {}


def _open_mpi(
    plan: EnginePlan, context: LaunchContext, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Let ranks on one machine share memory: by default they listen on a port of each address too.

    Keep what they share in the worker's folder: killed processes leave it behind.

    In Python mode too: TensorRT-LLM uses MPI by itself. The names are those of 5 and 4.
    """
    if plan.parallel.hosts:
        # The folder is on this machine only.
        return {}
    names = ("OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_vader_backing_directory")
    transports = {"OMPI_MCA_btl": inherited.get("OMPI_MCA_btl", "^tcp")}
    return transports | dict.fromkeys(names, str(context.folder))


def _own_ports(
    plan: EnginePlan, index: int, given: Mapping[str, str], *, is_default: bool = True
) -> dict[str, str]:
    """Return the variables for the ports of one of several workers, where any may be used."""
    implementation = implementations().get(plan.engine)
    if not index or implementation is None:
        return {}
    offset = index * plan.config.copies * plan.parallel.tensor_parallel_degree
    has_peers = is_default and any(name in plan.config.passthrough for name in TRANSFERS)
    ports = {
        name: given.get(name, str(default) if has_peers else "0")
        for name, default in implementation.ports.items()
    }
    return {
        name: str(int(port) + offset)
        for name, port in ports.items()
        if port.isdecimal() and int(port)
    }


def _join(first: str, rest: str) -> str:
    return os.pathsep.join(part for part in (first, rest) if part)


# MPI mode: a worker is a group of ranks that mpirun starts, on one node or several. The options are
# Open MPI's; 4 and 5 take them alike.
_JOB = ("OMPI_", "PMIX_", "PMI_", "PRTE_")
_SETTINGS = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")
_TAG = re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>: ?")


def mpirun(parallel: Parallel, variables: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that start a worker's ranks, before the command of one rank.

    Args:
        variables: names of those that ranks on other nodes must get; ranks on this node
            inherit them.
    """
    argv = [parallel.mpirun, "--allow-run-as-root", "-np", str(parallel.processes)]
    # More ranks than cores are no mistake: a rank computes on its device. Threads choose their
    # cores themselves.
    argv += ["--oversubscribe", "--bind-to", "none", "--tag-output"]
    # Containers forbid one process to read the memory of another.
    argv += ["--mca", "btl_vader_single_copy_mechanism", "none"]
    if parallel.hosts:
        each = parallel.processes // len(parallel.hosts)
        argv += ["--host", ",".join(f"{host}:{each}" for host in parallel.hosts)]
        for name in variables:
            argv += ["-x", name]
    return (*argv, *parallel.mpi_options)


def is_job_variable(name: str) -> bool:
    return name.startswith(_JOB) and not name.startswith(_SETTINGS)


def readable(line: str) -> str:
    """Return a line of mpirun with a readable tag: `[1,3]<stderr>: x` is `rank 3: x`."""
    return _TAG.sub(r"rank \1: ", line, count=1)
