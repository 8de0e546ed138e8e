"""Say how to install what this package only uses where it is there.

The package is on no index, so `pip install lmi-backend[extra]` works nowhere; what its extras bring
is on the usual one.
"""

from __future__ import annotations

import re
import shlex
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

_NAME: Final = "lmi-backend"


def pip_command(extra: str) -> str:
    """Return the command that installs what an extra of this package brings."""
    return f"`pip install {' '.join(map(shlex.quote, _requirements(extra)))}`"


def _requirements(extra: str) -> list[str]:
    try:
        declared = requires(_NAME) or []
    except PackageNotFoundError:
        # Run from a folder, as the stub may: then somebody has the sources.
        return [f"{_NAME}[{extra}]"]
    parts = (each.partition(";") for each in declared)
    return [
        requirement.strip()
        for requirement, _, marker in parts
        if re.search(rf"\bextra == ['\"]{re.escape(extra)}['\"]", marker)
    ]
