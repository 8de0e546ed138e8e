"""Rank 0's way to the other ranks, over mpi4py as in the library."""

from typing import Any

from mpi4py.futures import MPICommExecutor


class MpiCommSession:
    def __init__(self, comm: Any = None, n_workers: int = 1) -> None:
        if comm.Get_rank() != 0:
            raise RuntimeError("only rank 0 can start multi-node session")
        if n_workers != comm.Get_size():
            raise ValueError(f"n_workers must be {comm.Get_size()}, got {n_workers}")
        self.comm, self.n_workers = comm, n_workers
        self._owner = MPICommExecutor(comm)
        self._executor = self._owner.__enter__()

    def submit(self, task: Any, *args: Any) -> list[Any]:
        return [self._executor.submit(task, *args) for _ in range(self.n_workers - 1)]

    def shutdown(self) -> None:
        self._owner.__exit__(None, None, None)
