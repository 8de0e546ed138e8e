"""Which release of Triton a server is, and what follows from that."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from types import MappingProxyType
from typing import Final

# Beside bin/ in NVIDIA's images.
_VERSION_FILE: Final = "TRITON_VERSION"
_FIRST: Final = 2023 * 12 + 9
"""Month of 23.10, which is 2.39.0; each month has a release, and each release a minor version."""
_FIRST_MINOR: Final = 39
_PATCH: Final = (2, 59, 1)
"""The version of 25.07, the one release that has a patch number instead."""
_NUMPY_2: Final = (2, 52, 0)
"""The version of 24.11, the first whose stub takes numpy 2 (python_backend#384)."""
_NUMPY_TWO: Final = 2
_NO_SHELL: Final = (2, 60, 0)
"""The version of 25.08, the first that starts stubs without a shell (python_backend#404)."""

IN_WHEELS: Final = MappingProxyType({"nvidia-pytriton==0.7.0": "2.51.0"})
"""Version of the server inside a wheel, by the wheel's requirement."""
KNOWN_UNTIL: Final = "2026-09-08"
"""Day of the newest of NVIDIA's bulletins that was read."""
OLDEST_FOR_FLEETS: Final = "26.07"
"""The first release to which none of the bulletins until `KNOWN_UNTIL` applies."""
_SAFE: Final = (2, 71, 0)
"""Its version."""
BULLETINS: Final = "https://www.nvidia.com/security/"


def release_name(version: str) -> str:
    """Return the release of a version, as 24.10 for 2.51.0; empty if it is none of them."""
    numbers = _numbers(version)
    major, minor, patch = numbers or (0, 0, 0)
    if major != _PATCH[0] or minor < _FIRST_MINOR or (patch and numbers != _PATCH):
        return ""
    year, month = divmod(_FIRST + minor - _FIRST_MINOR + (numbers >= _PATCH), 12)
    return f"{year % 100}.{month + 1:02}"


def is_vulnerable(version: str) -> bool:
    """Return whether a version, as 2.51.0, has known vulnerabilities; False if it is not one."""
    numbers = _numbers(version)
    return bool(numbers) and numbers < _SAFE


def describe(version: str) -> str:
    """Return one line on a version that a server reports: its release, and whether it is safe."""
    numbers = _numbers(version)
    if not numbers:
        return f"Triton {version!r:.40}: not a version such as 2.71.0, so nothing is known of it"
    name = _named(numbers)
    if is_vulnerable(version):
        return (
            f"{name} has published vulnerabilities ({BULLETINS}); use {OLDEST_FOR_FLEETS} or later"
        )
    return f"{name}: no vulnerability published until {KNOWN_UNTIL} is open"


def installed_version(binary: Path) -> str:
    """Return the version of a tritonserver that does not run; empty if nothing tells.

    Args:
        binary: the program, as `find_server` finds it.
    """
    try:
        return (binary.parent.parent / _VERSION_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        wheels = IN_WHEELS if "pytriton" in binary.parts else ()
        return next((IN_WHEELS[wheel] for wheel in wheels if _is_installed(wheel)), "")


def numpy_problem(version: str, numpy: str) -> str:
    """Return why a server cannot serve with a release of numpy; empty if it can, or nobody knows.

    Args:
        version: of the server, as `installed_version` finds it.
        numpy: of the Python that its stubs run on.
    """
    numbers = _numbers(version)
    if not numbers or numbers >= _NUMPY_2 or int(numpy.partition(".")[0]) < _NUMPY_TWO:
        return ""
    return (
        f"numpy {numpy} with {_named(numbers)}: the first request would kill the model's "
        "process; a Triton before 24.11 needs `pip install 'numpy<2'`"
    )


def starts_stubs_by_shell(version: str) -> bool:
    """Return whether a server hands the paths of models to a shell; True if that is not known.

    Args:
        version: as `installed_version` finds it.
    """
    return _numbers(version) < _NO_SHELL


def _is_installed(wheel: str) -> bool:
    name, _, version = wheel.partition("==")
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def _named(numbers: tuple[int, ...]) -> str:
    version = ".".join(map(str, numbers))
    return " ".join(filter(None, ("Triton", release_name(version), f"({version})")))


def _numbers(version: str) -> tuple[int, ...]:
    """Return (2, 51, 0) of 2.51.0 and 2.51.0dev; nothing of what is no version."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![\d.])", version)
    return tuple(map(int, match.groups())) if match else ()
