"""MPI mode: which launcher, and which machines the ranks of a worker run on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import PlanError
from lmi_backend.files import read_bounded
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import vllm
from lmi_backend.plan.engine_plan import Explanation, Parallel
from lmi_backend.printable import MIB, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import Degrees
    from lmi_backend.plan.hardware import Hardware

_PROCESSES: Final = "mp"
"""The executor of vLLM that starts processes of its own."""
_PORT: Final = 29501
"""Where vLLM's nodes meet unless told otherwise."""
_LEADER: Final = "DJL_LEADER_ADDR"
_WORKERS: Final = "DJL_WORKER_ADDR_FORMAT"
_ONE_NUMBER: Final = re.compile(r"[^%]*%[ds][^%]*")


def find_hosts(options: LmiOptions, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the machines that may share a worker, this one first; none if only this one may.

    They are in option.mpi_hostfile, or in the variables of LMI's own clusters.

    Raises:
        OptionError: the file cannot be read, or contradicts the number of machines.
        PlanError: the variables are not as LMI has them.
    """
    size = options[opt.CLUSTER_SIZE]
    if options[opt.MPI_HOSTFILE]:
        hosts = _read_hostfile(options)
        if options.is_set(opt.CLUSTER_SIZE) and size != len(hosts):
            problem = f"names {len(hosts)} machines, but {opt.CLUSTER_SIZE.name} is {size}"
            raise options.error(opt.MPI_HOSTFILE, problem)
    elif size > 1 and environment.get(_LEADER) and environment.get(_WORKERS):
        form = environment[_WORKERS]
        if not _ONE_NUMBER.fullmatch(form):
            problem = f"{_WORKERS}={printable(form)} is not a name with one %d in it"
            raise PlanError(f"{problem}; accepted: for example worker-%d")
        hosts = (environment[_LEADER], *(form % index for index in range(1, size)))
    else:
        return ()
    return hosts if len(hosts) > 1 else ()


def make_parallel(
    options: LmiOptions,
    environment: Mapping[str, str],
    hardware: Hardware,
    degrees: Degrees,
    size: int,
    report: Explanation,
) -> Parallel:
    """Return what a worker of `size` devices spans; which devices these are is not chosen yet."""
    nodes = hardware.nodes_for(size)
    if not hardware.devices and spans_by_itself(options) and size % hardware.nodes == 0:
        # Without devices nothing else says how many machines are wanted.
        nodes = hardware.nodes
    mode = options.choice.mode
    if mode == "mpi" and size == 1 and (reason := options.choice.spec.implementation.lone_rank):
        report.reasons.append(f"no mpirun: {reason}")
        mode = "python"
    parallel = Parallel(
        mode=mode,
        tensor_parallel_degree=degrees.tensor,
        pipeline_parallel_degree=degrees.pipeline,
        nodes=nodes,
    )
    if mode != "mpi":
        for option in (opt.MPI_HOSTFILE, opt.MPI_OPTIONS):
            if options.is_set(option):
                report.ignore(option.name, "Python mode starts no ranks")
        return parallel
    if options[vllm.DATA_PARALLEL_SIZE] > 1:
        raise options.error(vllm.DATA_PARALLEL_SIZE, "is not served in MPI mode; use engine=Python")
    hosts = find_hosts(options, environment)
    if not hardware.devices and hosts and size % len(hosts) == 0:
        # Without devices nothing says how many machines are wanted but their list.
        nodes = len(hosts)
    if nodes > max(1, len(hosts)):
        raise PlanError(
            f"MPI mode over {nodes} nodes needs their names: {opt.MPI_HOSTFILE.name}, or "
            f"{_LEADER} and {_WORKERS} with {opt.CLUSTER_SIZE.name}"
        )
    return replace(
        parallel,
        nodes=nodes,
        hosts=hosts[:nodes] if nodes > 1 else (),
        mpirun=_find_mpirun(environment),
        mpi_options=_split_mpi_options(options)[0],
    )


def launcher_variables(options: LmiOptions) -> dict[str, str]:
    """Return the variables that option.mpi_options sets (`-x NAME=VALUE`), for the ranks alone.

    They are set as option.env's are: any user of the machine can read a command line.
    """
    return _split_mpi_options(options)[1] if options.choice.mode == "mpi" else {}


def _split_mpi_options(options: LmiOptions) -> tuple[tuple[str, ...], dict[str, str]]:
    try:
        written = shlex.split(options[opt.MPI_OPTIONS])
    except ValueError as error:
        raise options.error(opt.MPI_OPTIONS, f"cannot be split into arguments: {error}") from error
    argv: list[str] = []
    variables: dict[str, str] = {}
    for argument in written:
        name, is_set, value = argument.partition("=")
        if argv[-1:] == ["-x"] and is_set:
            argv.pop()
            variables[name] = value
        else:
            argv.append(argument)
    return tuple(argv), variables


def executor(
    options: LmiOptions, environment: Mapping[str, str], nodes: int, report: Explanation
) -> dict[str, str | int]:
    """Return the arguments by which an engine in Python mode spans several nodes.

    Over Ray, unless the user wants the engine's own processes.

    Raises:
        PlanError: nobody says where the first node is.
    """
    argument = options.choice.spec.implementation.ray_argument
    is_alone = nodes == 1 or options.choice.mode == "mpi"
    if is_alone or not argument:
        return {}
    if spans_by_itself(options):
        return _own_nodes(options, environment, nodes, report)
    if argument in options.passthrough:
        return {}
    report.reasons.append(
        f"Ray: {nodes} nodes in Python mode; each must have joined the Ray cluster"
    )
    return {argument: "ray"}


def spans_by_itself(options: LmiOptions) -> bool:
    """Tell whether the engine's own processes shall span several nodes, without Ray and MPI."""
    implementation = options.choice.spec.implementation
    setting = options.passthrough.get(implementation.ray_argument)
    is_given = setting is not None and setting.value == _PROCESSES
    return is_given and options.choice.mode == "python" and bool(implementation.node)


def _own_nodes(
    options: LmiOptions, environment: Mapping[str, str], nodes: int, report: Explanation
) -> dict[str, str | int]:
    if "nnodes" in options.passthrough:
        return {}
    leader = options.passthrough.get("master_addr")
    port = options.passthrough.get("master_port")
    host = leader.value if leader else environment.get(_LEADER, "")
    if not host:
        raise PlanError(
            f"{nodes} nodes by {options.choice.spec.title} itself need the address of the first: "
            f"{_LEADER}, or option.master_addr"
        )
    if port is None:
        report.reasons.append(f"port {_PORT} on {host}: where the nodes meet (option.master_port)")
    report.reasons.append(
        f"{nodes} nodes by {options.choice.spec.title} itself: on each of the others run "
        "`lmi-backend join`"
    )
    # What the user gives is handed over as text; the launch and the other nodes read these.
    return {
        "nnodes": nodes,
        "node_rank": 0,
        "master_addr": host,
        "master_port": int(port.value) if port else _PORT,
    }


def _find_mpirun(environment: Mapping[str, str]) -> str:
    # On PATH, else next to Python; none where a plan is for another machine.
    folders = (environment.get("PATH", ""), str(Path(sys.executable).parent))
    return shutil.which("mpirun", path=os.pathsep.join(folders)) or ""


def _read_hostfile(options: LmiOptions) -> tuple[str, ...]:
    path = options.folder / options[opt.MPI_HOSTFILE]
    try:
        lines = read_bounded(path, MIB).decode().splitlines()
    except (OSError, ValueError) as error:
        raise options.error(opt.MPI_HOSTFILE, f"cannot be read: {error}") from error
    fields = (line.partition("#")[0].split() for line in lines)
    return tuple(each[0] for each in fields if each)
