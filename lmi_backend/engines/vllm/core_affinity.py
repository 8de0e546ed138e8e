"""Which cores vLLM's processes run on, where it computes on the CPU."""

from __future__ import annotations

import contextlib
import logging
import os

import psutil

_log = logging.getLogger(__name__)


def keep_cores_apart() -> None:
    """Bind each engine core of this process to the CPU cores of its workers.

    vLLM binds its workers to some CPU cores and reserves others for the front end. The engine core
    busy-waits between two steps, on any of them. On a reserved one it starves the front end, and
    the server around it, for as long as answers take. On a worker's one it gives way to the worker,
    which runs while the engine core waits.
    """
    for core in psutil.Process().children():
        try:
            own = frozenset(core.cpu_affinity())
            cores = frozenset(n for worker in core.children() for n in worker.cpu_affinity())
            if cores and cores < own:
                _bind(core, cores)
                _log.info("engine core %d keeps to its workers' cores %s", core.pid, sorted(cores))
        except psutil.Error:
            # It has ended, as a helper may; a dead engine core is noticed elsewhere.
            continue


def _bind(process: psutil.Process, cores: frozenset[int]) -> None:
    for thread in process.threads():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread.id, cores)
