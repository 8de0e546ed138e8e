"""Print what NVIDIA's management library says of each device, as `nvidia-smi --format=csv` would.

A program of its own, with the standard library only: a driver that hangs must not take its caller
with it. Each partition of a divided GPU (MIG) is a line, in the place of the GPU's own.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

UNKNOWN: Final = "[N/A]"
_LIBRARY: Final = "libnvidia-ml.so.1"
_WINDOWS: Final = f"/usr/lib/wsl/lib/{_LIBRARY}"
_TEXT_BYTES: Final = 96
_MOST_LINKS: Final = 18
_MIB: Final = 1 << 20


class _Memory(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _OldMemory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class Library:
    """The library's functions, with Python's values.

    Raises:
        OSError: there is no library, or it cannot reach the driver.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError:
            self._library = ctypes.CDLL(_WINDOWS)
        if not self._call("nvmlInit_v2"):
            raise OSError("the driver does not answer")

    def lines(self) -> list[str]:
        """Return index, UUID, name, MiB in all and kept by the driver, capability, driver, links.

        Links are the NVLinks that are up.
        """
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            if self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device)):
                parts = self._partitions(device)
                found += [self._line(index, part, device) for part in parts or [device]]
        return found

    def _line(self, index: int, device: ctypes.c_void_p, whole: ctypes.c_void_p) -> str:
        uuid, name = (
            self._text(f"nvmlDeviceGet{what}", each)
            for what, each in (("UUID", device), ("Name", whole))
        )
        version = self._text("nvmlSystemGetDriverVersion")
        total, kept = self._memory(device)
        known = (str(index), uuid, name, total, kept, self._capability(whole), version)
        return ", ".join((*known, str(self._links(whole))))

    def _links(self, device: ctypes.c_void_p) -> int:
        up = ctypes.c_uint()
        state = "nvmlDeviceGetNvLinkState"
        return sum(
            self._call(state, device, link, ctypes.byref(up)) and up.value == 1
            for link in range(_MOST_LINKS)
        )

    def _partitions(self, device: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        mode, pending, most = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending))
        if mode.value:
            self._call("nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
        found = []
        for index in range(most.value):
            part = ctypes.c_void_p()
            name = "nvmlDeviceGetMigDeviceHandleByIndex"
            if self._call(name, device, index, ctypes.byref(part)):
                found.append(part)
        return found

    def _memory(self, device: ctypes.c_void_p) -> tuple[str, str]:
        new = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        if self._call("nvmlDeviceGetMemoryInfo_v2", device, ctypes.byref(new)):
            return str(new.total // _MIB), str(new.reserved // _MIB)
        old = _OldMemory()
        if self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(old)):
            return str(old.total // _MIB), UNKNOWN
        return UNKNOWN, UNKNOWN

    def _capability(self, device: ctypes.c_void_p) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        name = "nvmlDeviceGetCudaComputeCapability"
        is_known = self._call(name, device, ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}" if is_known else UNKNOWN

    def _text(self, name: str, *device: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        is_known = self._call(name, *device, text, _TEXT_BYTES)
        return text.value.decode("utf-8", "replace") if is_known else UNKNOWN

    def _call(self, name: str, *arguments: object) -> bool:
        """Tell whether a function succeeded; one that an older library has not does not."""
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0


if __name__ == "__main__":
    try:
        print("\n".join(Library().lines()))  # noqa: T201  a program's answer
    except OSError as reason:
        sys.exit(str(reason))
