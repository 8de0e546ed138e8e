"""MPI mode: a worker is a group of ranks that mpirun starts, on one node or several.

Open MPI 4 and 5 take the same arguments.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.plan import EnginePlan

_JOB = ("OMPI_", "PMIX_", "PMI_", "PRTE_")
_SETTINGS = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")
_TAG = re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>: ?")


def mpirun(plan: EnginePlan, variables: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that start a plan's ranks, before the command of one rank.

    Args:
        variables: names of those that ranks on other nodes must get; ranks on this node
            inherit them.
    """
    argv = [plan.mpirun, "--allow-run-as-root", "-np", str(plan.processes)]
    # More ranks than cores are no mistake: a rank computes on its device. Threads choose their
    # cores themselves.
    argv += ["--oversubscribe", "--bind-to", "none", "--tag-output"]
    # Containers forbid one process to read the memory of another.
    argv += ["--mca", "btl_vader_single_copy_mechanism", "none"]
    if plan.hosts:
        each = plan.processes // len(plan.hosts)
        argv += ["--host", ",".join(f"{host}:{each}" for host in plan.hosts)]
        for name in variables:
            argv += ["-x", name]
    return (*argv, *plan.mpi_options)


def rendezvous(plan: EnginePlan, port: int) -> dict[str, str]:
    """Return where the ranks of a worker find each other, as torch reads it."""
    host = plan.hosts[0] if plan.hosts else "127.0.0.1"
    return {"MASTER_ADDR": host, "MASTER_PORT": str(port)}


def is_job_variable(name: str) -> bool:
    """Tell variables that would make the worker think it is a rank of the server's MPI job."""
    return name.startswith(_JOB) and not name.startswith(_SETTINGS)


def readable(line: str) -> str:
    """Return a line of mpirun with a readable tag: `[1,3]<stderr>: x` is `rank 3: x`."""
    return _TAG.sub(r"rank \1: ", line, count=1)
