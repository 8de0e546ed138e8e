"""What the ranks after the first run: each token passes through all of them."""

from typing import Any

_TAG = 7


def work(_: Any = None) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    while (word := comm.recv(source=0, tag=_TAG)) is not None:
        comm.send(word, dest=0, tag=_TAG)


def through(comm: Any, word: str) -> str:
    """Pass a word through every other rank; hangs if one is dead, as the library does."""
    for rank in range(1, comm.Get_size()):
        comm.send(word, dest=rank, tag=_TAG)
        word = comm.recv(source=rank, tag=_TAG)
    return word


def end(comm: Any) -> None:
    for rank in range(1, comm.Get_size()):
        comm.send(None, dest=rank, tag=_TAG)
