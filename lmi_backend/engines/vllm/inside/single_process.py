"""A core that computes on the CPU in its own process, as a core with a single GPU does.

On a CPU vLLM gives each core a worker process: the threads of OpenMP are set by variables of a
process that has just been started (`CpuPlatform.check_and_update_config`). The two poll each other
in a loop for each step. A core of one rank is itself such a process: with the variables of its
worker it computes. That saves the waiting, a start of Python, half a GiB of memory and half of a
core (benchmarks/README.md has the figures).
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, names

_VARIABLE: Final = "LMI_BACKEND_SINGLE_PROCESS"
"""In a core that is to compute by itself: the process that has started it."""


def prepare(config: Any, *, chosen: Any) -> AbstractContextManager[object]:
    """Let the core of a VllmConfig compute by itself, where it can.

    Args:
        config: changed in place.
        chosen: the executor that the user named; it stays.

    Returns:
        In which the core's process is to be started; it has been entered.
    """
    if not fast_paths.is_on("single_process") or chosen is not None:
        return nullcontext()
    parallel = config.parallel_config
    before = parallel.distributed_executor_backend
    try:
        with fast_paths.watched(
            "single_process", "an executor, and the variables of a worker on a CPU"
        ):
            if not names.current_platform.is_cpu() or parallel.world_size_across_dp > 1:
                return nullcontext()
            # Before 0.20, which has the manager, a worker bound its threads by itself.
            variables = names.OMPProcessManager(config).configure_omp_envs(0, 0)
            # A class, and no function that makes its objects.
            issubclass(names.UniProcExecutor, object)
            # The name "uni" would be changed to "mp" again, in the core too.
            parallel.distributed_executor_backend = names.UniProcExecutor
            stack = ExitStack()
            stack.enter_context(variables)
            os.environ[_VARIABLE] = str(os.getpid())
            stack.callback(os.environ.pop, _VARIABLE, None)
    except Exception:  # noqa: BLE001  it was warned of
        if parallel.distributed_executor_backend is not before:
            parallel.distributed_executor_backend = before
        return nullcontext()
    return stack


def look() -> None:
    """Say that a core has another process compute, if this is one of them and it was not to."""
    import multiprocessing  # noqa: PLC0415  it makes a module of the program's

    parent, starter = multiprocessing.parent_process(), os.environ.get(_VARIABLE)
    if parent is not None and starter is not None and str(parent.pid) != starter:
        fast_paths.turn_off(
            "single_process",
            "a core that starts no process",
            f"process {parent.pid} has started one",
        )
