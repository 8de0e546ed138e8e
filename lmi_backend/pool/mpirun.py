"""MPI mode: a worker is a group of ranks that mpirun starts, on one node or several.

The options are Open MPI's; 4 and 5 take them alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.plan.engine_plan import Parallel

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
