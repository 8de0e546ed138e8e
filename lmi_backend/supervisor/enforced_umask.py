"""Make the umask hold for shared memory too.

The Python backend makes its regions of /dev/shm with Boost. Boost calls fchmod(fd, 0644) on each
region that it creates, so the umask does not count (seen on 24.10). In a program started with
`enforce_umask` that call, with just that mode, changes nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final

MASK: Final = 0o077
"""Files are for the server's user only."""

_OPENED: Final = 0o644
# From linux/audit.h and the system call tables.
_MACHINES: Final = {"x86_64": (0xC000003E, 91), "aarch64": (0xC00000B7, 52)}
_NO_NEW_PRIVILEGES: Final = 38
_SET_SECCOMP: Final = 22
_FILTER: Final = 2
_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
# An error whose number is 0 is success, without the call.
_DO_NOTHING: Final = 0x00050000


class _Program(ctypes.Structure):
    """`struct sock_fprog` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 4


def enforce_umask() -> None:
    """Set the umask, and keep Boost from going around it. For a child, before it loads a program.

    On machines other than x86-64 and ARM64, and on kernels without seccomp, only the umask is set.
    There the stub sets the mode of its region when it loads a model.
    """
    os.umask(MASK)
    if _INSTRUCTIONS and not _libc.prctl(_NO_NEW_PRIVILEGES, 1, None, None, None):
        _libc.prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(_PROGRAM), None, None)


def _filter(architecture: int, fchmod: int) -> bytes:
    """Return a program of classic BPF; it reads `struct seccomp_data` of linux/seccomp.h."""
    number, machine, mode = 0, 4, 24
    instructions = (
        (_LOAD, 0, 0, machine),
        (_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, number),
        (_IF_EQUAL, 0, 3, fchmod),
        (_LOAD, 0, 0, mode),
        (_IF_EQUAL, 0, 1, _OPENED),
        (_RETURN, 0, 0, _DO_NOTHING),
        (_RETURN, 0, 0, _ALLOW),
    )
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


_MACHINE: Final = _MACHINES.get(platform.machine())
_INSTRUCTIONS: Final = _filter(*_MACHINE) if _MACHINE else b""
_PROGRAM: Final = _Program(len(_INSTRUCTIONS) // 8, _INSTRUCTIONS)
