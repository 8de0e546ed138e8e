"""What processes listen on that another user of the machine can reach."""

import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from lmi_backend.supervisor.processes import with_children

OF_GROUPS = (" of prterun ", " of mpirun ", "python -m lmi_backend.worker.main")
"""In doors of ranks: those of Open MPI's launcher, and of the store where torch's ranks meet."""
_NETWORKS = (socket.AF_INET, socket.AF_INET6)


def doors(processes: Iterable[psutil.Process]) -> list[str]:
    """Return the ports, and Unix sockets in open folders, of processes and all below them."""
    found: list[str] = []
    unix = _listening_paths()
    for process in with_children(processes):
        try:
            name = " ".join([process.name(), *process.cmdline()])
            found += (f"{door} of {name} " for door in _doors_of(process, unix))
        except psutil.Error:
            continue
    return sorted(found)


def _doors_of(process: psutil.Process, unix: set[str]) -> Iterator[str]:
    for each in process.net_connections("all"):
        if each.family in _NETWORKS:
            is_udp = each.type == socket.SOCK_DGRAM
            if each.status == psutil.CONN_LISTEN or (is_udp and each.laddr and not each.raddr):
                yield f"{'udp' if is_udp else 'tcp'} {each.laddr.ip}:{each.laddr.port}"
        elif each.laddr in unix and _is_open(str(each.laddr)):
            yield f"unix {each.laddr}"


def _listening_paths() -> set[str]:
    """Return the names of all Unix sockets that are not anonymous."""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()[1:]
    return {words[7] for words in map(str.split, lines) if len(words) > 7}


def _is_open(path: str) -> bool:
    """Tell whether others may reach a Unix socket."""
    if path.startswith("@"):
        return True
    try:
        return all(each.stat().st_mode & stat.S_IXOTH for each in Path(path).parents)
    except OSError:
        return False
