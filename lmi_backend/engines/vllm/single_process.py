"""A core that computes on the CPU in its own process, as one does that has a single GPU.

On a CPU vLLM gives each core a worker process, because the threads of OpenMP are set by variables
of a process that has just been started (`CpuPlatform.check_and_update_config`), and lets the two
ask each other in a loop for each step. A core of one rank is itself such a process: with the
variables of its worker it computes, and who waits for whom goes, with a start of Python, half a
GiB of memory and half of a core (benchmarks/README.md has the figures).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.executor.uniproc_executor import UniProcExecutor

try:  # 0.20; before, a worker bound its threads by itself
    from vllm.utils.ompmultiprocessing import OMPProcessManager
except ImportError:
    OMPProcessManager = None


def prepare(config: Any, *, chosen: Any) -> AbstractContextManager[None]:
    """Let the core of a VllmConfig compute by itself, where it can.

    Args:
        config: changed in place.
        chosen: the executor that the user named; it stays.

    Returns:
        In which the core's process is to be started.
    """
    parallel = config.parallel_config
    if (
        OMPProcessManager is None
        or not current_platform.is_cpu()
        or chosen is not None
        or parallel.world_size_across_dp > 1
    ):
        return nullcontext()
    # The name "uni" would be changed to "mp" again, in the core too.
    parallel.distributed_executor_backend = UniProcExecutor
    variables: AbstractContextManager[None] = OMPProcessManager(config).configure_omp_envs(0, 0)
    return variables
