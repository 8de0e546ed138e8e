"""Processes of vLLM that wait before they load a model: those of a spare.

vLLM loads its general plugins in each of its processes, after the imports and before a process
takes memory of a device. The plugin `gate` waits there for a lock, which the worker holds until it
is needed. The lock goes with the worker: nobody waits for one that has died.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from lmi_backend.engines.vllm import plugins

_VARIABLE: Final = "LMI_BACKEND_GATE"


class Gate:
    """Holds the processes that an engine in this process starts."""

    def __init__(self) -> None:
        self._path = Path(tempfile.mkdtemp(prefix="gate-"), "lock")
        self._lock = self._path.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        plugins.install("gate")
        os.environ[_VARIABLE] = str(self._path)

    def expect(self, config: Any) -> None:
        """Choose who waits.

        The process that loads the model does: the core, or each rank, where these are processes
        that the core starts.

        Args:
            config: vLLM's, of the engine that is started now.
        """
        parallel = config.parallel_config
        has_ranks = parallel.distributed_executor_backend == "mp"
        ranks = parallel.world_size if has_ranks else 1
        what = {
            "front": os.getpid(),
            "has_ranks": has_ranks,
            "number": ranks * getattr(parallel, "data_parallel_size_local", 1),
            "modules": [str(parallel.worker_cls).rpartition(".")[0]],
        }
        # Others look at it meanwhile.
        draft = self._path.with_name("draft")
        draft.write_text(json.dumps(what), encoding="utf-8")
        draft.rename(self._path.with_name("what"))

    @property
    def is_reached(self) -> bool:
        """Whether all processes wait."""
        what = self._path.with_name("what")
        if not what.exists():
            return False
        number: int = json.loads(what.read_text(encoding="utf-8"))["number"]
        return len(list(self._path.parent.glob("*.waits"))) >= number

    def open(self) -> None:
        """Let all of them load the model, now and later."""
        os.environ.pop(_VARIABLE, None)
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()


def wait() -> None:
    """Wait at the gate, if there is one and this process is to."""
    if (path := os.environ.get(_VARIABLE)) is None:
        return
    # Only processes of vLLM come here, which have it.
    import multiprocessing  # noqa: PLC0415

    if (parent := multiprocessing.parent_process()) is None:
        return
    lock = Path(path)
    what = json.loads(lock.with_name("what").read_text(encoding="utf-8"))
    if (parent.pid == what["front"]) == what["has_ranks"]:
        return
    for module in filter(None, what["modules"]):
        importlib.import_module(module)
    lock.with_name(f"{os.getpid()}.waits").touch()
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
