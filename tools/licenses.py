"""Look for licences that nobody has thought of, in what is installed: `make licenses`.

    .venv/bin/python tools/licenses.py

requirements/licenses.md explains each package whose licence is not permissive, by its metadata.
Exit status 1: it lacks one, or explains one that is no longer there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "requirements" / "licenses.md"
ENVIRONMENTS: Final = (".venv", ".venv-engine")
# Free text that packages use for what has an SPDX name.
_SPDX: Final = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "licenseref-openmpi": "BSD-3-Clause-Open-MPI",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
# Text in `License` that names none.
_VAGUE: Final = {"", "dual license"}
_LONG: Final = 80
_PERMISSIVE: Final = frozenset(
    [
        *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI"),
        *("BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC", "LLVM-exception", "MIT", "MIT-0", "MIT-CMU"),
        *("PSF-2.0", "Unlicense", "ZPL-2.1"),
    ]
)
_EXPLAINED: Final = re.compile(r"^- `([\w.-]+)` \((.*?)\): ", re.MULTILINE)
_OURS: Final = "lmi-backend"


def main() -> int:
    wrong = [*problems(PAGE.read_text(encoding="utf-8"), installed(ROOT))]
    sys.stdout.write("".join(f"requirements/licenses.md: {line}\n" for line in wrong))
    return 1 if wrong else 0


def installed(root: Path) -> dict[str, str]:
    """Return the licence of each package of the environments that are there, by its name."""
    folders = [
        str(path)
        for name in ENVIRONMENTS
        for path in root.glob(f"{name}/lib/python3*/site-packages")
    ]
    found = {
        str(canonicalize_name(each.name)): license_of(each) for each in distributions(path=folders)
    }
    return {name: license_ for name, license_ in found.items() if name != _OURS}


def problems(page: str, found: Mapping[str, str]) -> Iterator[str]:
    """Yield how a page differs from what packages name; one that is not installed may be there."""
    explained: dict[str, str] = dict(_EXPLAINED.findall(page))
    for name, license_ in sorted(found.items()):
        wanted = "" if is_permissive(license_) else license_ or "none named"
        if explained.get(name, "") != wanted:
            accepted = f"a line `{name}` ({wanted})" if wanted else f"no line `{name}`"
            yield f"accepted: {accepted}"


def is_permissive(license_: str) -> bool:
    """Tell whether all names of an expression are those of permissive licences."""
    names = set(re.split(r"[\s()]+", license_)) - {"AND", "OR", "WITH", ""}
    return bool(names) and names <= _PERMISSIVE


def license_of(package: Distribution) -> str:
    """Return the licence that a package names, in SPDX's words where they are known."""
    metadata = package.metadata
    for expression in metadata.get_all("License-Expression") or []:
        return _spdx(expression)
    text = "".join(metadata.get_all("License") or []).strip()
    first, _, more = text.partition("\n")
    named = "" if more or len(text) > _LONG or text.lower() in _VAGUE else _spdx(text)
    # Some write the whole licence there, and its name into the first line.
    named = named or _SPDX.get(first.strip().lower(), "")
    classifiers = [
        _spdx(line.rpartition("::")[2].strip())
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    return named or " OR ".join(classifiers)


def _spdx(text: str) -> str:
    return _SPDX.get(text.lower(), text)


if __name__ == "__main__":
    sys.exit(main())
