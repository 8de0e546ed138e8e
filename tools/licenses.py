"""Record the licences of all that the locks pin, from what is installed: `make licenses`.

    .venv/bin/python tools/licenses.py

Writes requirements/licenses.json. What requirements/licenses.md says by hand is compared with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

import tomllib
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "requirements" / "licenses.json"
ENVIRONMENTS = {"server.txt": ".venv", "engine-cpu.txt": ".venv-engine"}
"""The environment that each lock makes."""
DEVELOPMENT = "development"
# Of the package's extras, those whose requirements run beside a model.
_SERVING = ("server", "client", "s3", "mpi")
# Free text that packages use for what has an SPDX name.
_SPDX = {
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
_VAGUE = {"", "dual license"}
_LONG = 80
PAGE = ROOT / "requirements" / "licenses.md"
_PERMISSIVE = frozenset(
    [
        *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI"),
        *("BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC", "LLVM-exception", "MIT", "MIT-0", "MIT-CMU"),
        *("PSF-2.0", "Unlicense", "ZPL-2.1"),
    ]
)
_EXPLAINED = re.compile(r"^- `([\w.-]+)` (\(.*?\)): .+ (Used for .+\.)$", re.MULTILINE)
_CARRIED = re.compile(r"^\| ([\w.-]+) \| (lib(?!rar)[\w, ]+) \|", re.MULTILINE)


class LicensesError(Exception):
    """What must be done before the licences are known."""


@dataclass(frozen=True)
class Licensed:
    """What one locked package says of itself."""

    license: str
    """An SPDX expression, or the text that stands for one; empty if it says nothing."""
    used: str
    """server, engine or development: what needs it."""
    libraries: list[str]
    """Shared libraries of others that its wheel brings along."""


def main() -> int:
    """Write the record; return the exit status."""
    try:
        record = {lock: read(lock, ROOT / where) for lock, where in ENVIRONMENTS.items()}
    except LicensesError as error:
        sys.stderr.write(f"licenses: {error}\n")
        return 1
    RECORD.write_text(_text(record), encoding="utf-8")
    sys.stdout.write(f"wrote {RECORD.relative_to(ROOT)}\n")
    return 0


def _text(record: Mapping[str, Mapping[str, Licensed]]) -> str:
    """Return the record as JSON, a package a line."""
    locks = [
        f"{json.dumps(lock)}: {{\n"
        + ",\n".join(f"{json.dumps(pin)}: {json.dumps(asdict(row))}" for pin, row in of.items())
        + "\n}"
        for lock, of in record.items()
    ]
    return "{" + ",\n".join(locks) + "}\n"


def pins(lock: str) -> list[str]:
    """Return the requirements of a lock, each as name==version."""
    lines = (ROOT / "requirements" / lock).read_text(encoding="utf-8").splitlines()
    return [line.partition(" ")[0] for line in lines if line[:1].strip("# ")]


def recorded() -> dict[str, dict[str, Licensed]]:
    """Return the record of each lock.

    Raises:
        LicensesError: a lock pins what the record has not, or no longer what it has.
    """
    rows = json.loads(RECORD.read_text(encoding="utf-8"))
    for lock in ENVIRONMENTS:
        if stray := sorted(set(pins(lock)) ^ set(rows.get(lock, {}))):
            message = (
                f"{RECORD.relative_to(ROOT)} and requirements/{lock} differ in "
                f"{', '.join(stray)}; run `make licenses`"
            )
            raise LicensesError(message)
    return {
        lock: {pin: Licensed(**row) for pin, row in sorted(of.items(), key=_by_name)}
        for lock, of in rows.items()
    }


def is_permissive(license_: str) -> bool:
    """Tell whether all names of an expression are those of permissive licences."""
    names = set(re.split(r"[\s()]+", license_)) - {"AND", "OR", "WITH", ""}
    return bool(names) and names <= _PERMISSIVE


def check_page(text: str, record: Mapping[str, Mapping[str, Licensed]]) -> None:
    """Compare what a page explains by hand with the record.

    Raises:
        LicensesError: a package under another than a permissive licence is not explained as it is,
            one that is explained needs it no more, or a wheel has no such libraries.
    """
    found: dict[str, list[Licensed]] = {}
    for pin, row in (each for rows in record.values() for each in rows.items()):
        found.setdefault(pin.partition("==")[0], []).append(row)
    explained = {name: f"{license_} {used}" for name, license_, used in _EXPLAINED.findall(text)}
    strict = {name: rows for name, rows in found.items() if not _all_permissive(rows)}
    wanted = {name: _wanted(rows) for name, rows in strict.items()}
    for name in sorted(wanted.keys() | explained.keys()):
        if wanted.get(name) != explained.get(name):
            line = f"a line `{name}` of {wanted[name]}" if name in wanted else f"no line `{name}`"
            raise LicensesError(f"{PAGE.relative_to(ROOT)}: accepted: {line}")
    for name, libraries in _CARRIED.findall(text):
        brought = {library for row in found.get(name, ()) for library in row.libraries}
        if gone := sorted(set(libraries.split(", ")) - brought):
            raise LicensesError(f"{PAGE.relative_to(ROOT)}: {name} has no {', '.join(gone)}")


def _all_permissive(rows: list[Licensed]) -> bool:
    return all(is_permissive(row.license) for row in rows)


def _wanted(rows: list[Licensed]) -> str:
    licenses = ", ".join(sorted({row.license for row in rows})) or "none named"
    uses = ", ".join(sorted({row.used for row in rows}))
    return f"({licenses}) Used for {uses}{' only' * (uses == DEVELOPMENT)}."


def read(lock: str, environment: Path) -> dict[str, Licensed]:
    """Return what the packages of a lock say of themselves where they are installed.

    Raises:
        LicensesError: one is not there, or in another version.
    """
    folders = [str(path) for path in environment.glob("lib/python3*/site-packages")]
    found = {canonicalize_name(each.name): each for each in distributions(path=folders)}
    served = _closure(found, _roots()) if lock == "server.txt" else set(found)
    use = "engine" if lock == "engine-cpu.txt" else "server"
    rows = {}
    for pin in pins(lock):
        name, _, version = pin.partition("==")
        package = found.get(canonicalize_name(name))
        # A build of its own, as 2.13.0+cpu, is the version that the lock means.
        if package is None or package.version.partition("+")[0] != version:
            message = f"{environment.name} has no {pin}: run `make install`"
            raise LicensesError(message)
        used = use if canonicalize_name(name) in served else DEVELOPMENT
        rows[pin] = Licensed(license_of(package), used, _libraries(package))
    return rows


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


def _libraries(package: Distribution) -> list[str]:
    """Name what tools that repair wheels put into folders of their own, without their hashes."""
    paths = [path for path in package.files or [] if path.parts[0].endswith(".libs")]
    return sorted({re.split(r"-[0-9a-f]{8}|\.so", path.name)[0] for path in paths})


def _roots() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in _SERVING for line in extras[extra])]


def _closure(found: Mapping[NormalizedName, Distribution], lines: list[str]) -> set[str]:
    """Return the names of all that these requirements need."""
    names: set[str] = set()
    open_ends = [(Requirement(line), set[str]()) for line in lines]
    while open_ends:
        wanted, extras = open_ends.pop()
        name = canonicalize_name(wanted.name)
        markers = [{"extra": extra} for extra in ("", *extras)]
        fits = wanted.marker is None or any(map(wanted.marker.evaluate, markers))
        if not fits or name not in found or (name in names and not wanted.extras):
            continue
        names.add(name)
        open_ends += [(each, wanted.extras) for each in _requirements(found[name])]
    return names


def _requirements(package: Distribution) -> Iterator[Requirement]:
    for line in package.requires or []:
        try:
            yield Requirement(line)
        except InvalidRequirement:
            continue


def _by_name(row: tuple[str, object]) -> str:
    return row[0].lower()


if __name__ == "__main__":
    sys.exit(main())
