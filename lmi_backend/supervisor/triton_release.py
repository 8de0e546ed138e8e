"""Which release of Triton a server is, and which published vulnerabilities it is open to.

The one table is triton_vulnerabilities.json in this folder. It has NVIDIA's releases, and each
vulnerability of NVIDIA's bulletins about Triton with the release that fixes it. Nothing here
needs a network.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_TABLE: Final[Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("triton_vulnerabilities.json").read_text(encoding="utf-8")
)
# Beside bin/ in NVIDIA's images.
_VERSION_FILE: Final = "TRITON_VERSION"


@dataclass(frozen=True)
class Vulnerability:
    """A published vulnerability of Triton."""

    cve: str
    fixed: str
    """The first release without it, as 26.07."""
    score: float
    """CVSS 3 base score, 0 to 10."""
    weakness: str
    effect: str
    """What may come of it, the worst first."""
    bulletin: str
    """Number of NVIDIA's bulletin."""
    since: str = ""
    """The first release with it, if not all before."""
    part: str = ""
    """The part of Triton that has it, if not every server does."""

    @property
    def source(self) -> str:
        """Address of the bulletin."""
        return f"{_TABLE['bulletins']}{self.bulletin}"


_NUMPY_2: Final = (2, 52, 0)
"""The version of 24.11, the first whose stub takes numpy 2 (python_backend#384)."""
_NUMPY_TWO: Final = 2
_NO_SHELL: Final = (2, 60, 0)
"""The version of 25.08, the first that starts stubs without a shell (python_backend#404)."""

RELEASES: Final[Mapping[str, str]] = MappingProxyType(_TABLE["releases"])
"""Release by the version a server reports; in the order of their making."""
IN_WHEELS: Final[Mapping[str, str]] = MappingProxyType(_TABLE["in_wheels"])
"""Version of the server inside a wheel, by the wheel's requirement."""
VULNERABILITIES: Final = tuple(Vulnerability(**row) for row in _TABLE["vulnerabilities"])
"""Every vulnerability known to the table, in the order of the releases that fix them."""
KNOWN_UNTIL: Final[str] = _TABLE["until"]
"""Day of the newest bulletin in the table."""
NEWEST_RELEASE: Final = list(RELEASES.values())[-1]
OLDEST_FOR_FLEETS: Final = VULNERABILITIES[-1].fixed
"""The oldest release without a vulnerability known to the table."""
_VERSIONS: Final = {release: version for version, release in RELEASES.items()}


def release_name(version: str) -> str:
    """Return the release of a version, as 24.10 for 2.51.0; empty if the table has it not."""
    return RELEASES.get(".".join(map(str, _numbers(version))), "")


def known_vulnerabilities(version: str) -> tuple[Vulnerability, ...]:
    """Return the vulnerabilities that are open in a version, as 2.51.0.

    A version newer than the table has no known vulnerability. Neither has a version that cannot be
    read; `describe` says what is known of it.
    """
    numbers = _numbers(version)
    return tuple(filter(partial(_is_open, numbers), VULNERABILITIES)) if numbers else ()


def describe(version: str) -> str:
    """Return one line on a version that a server reports: its release, and what it is open to."""
    numbers = _numbers(version)
    if not numbers:
        return f"Triton {version!r:.40}: not a version such as 2.71.0, so nothing is known of it"
    name = f"Triton {release_name(version) or _unlisted(numbers)} ({'.'.join(map(str, numbers))})"
    if found := known_vulnerabilities(version):
        first, last = found[0].fixed, found[-1].fixed
        fixes = first if first == last else f"{first} to {last}"
        count = f"{len(found)} published vulnerabilities" if found[1:] else found[0].cve
        return f"{name} is open to {count}, fixed in {fixes}; use {OLDEST_FOR_FLEETS} or later"
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
    name = release_name(version) or _unlisted(numbers)
    return (
        f"numpy {numpy} with Triton {name} ({version}): the first request would kill the model's "
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


def _is_open(numbers: tuple[int, ...], each: Vulnerability) -> bool:
    since = _numbers(_VERSIONS[each.since]) if each.since else ()
    return since <= numbers < _numbers(_VERSIONS[each.fixed])


def _unlisted(numbers: tuple[int, ...]) -> str:
    """Name a version that is not in the table by the release before it."""
    older = takewhile(lambda version: _numbers(version) < numbers, RELEASES)
    before = [RELEASES[version] for version in older]
    return f"later than {before[-1]}" if before else f"before {next(iter(RELEASES.values()))}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return (2, 51, 0) of 2.51.0 and 2.51.0dev; nothing of what is no version."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?![\d.])", version)
    return tuple(map(int, match.groups())) if match else ()
