"""Releases of an engine's library: their order, and which of them the tests have run on."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmi_backend.options.spec import Implementation


RECORD: Final = Path(__file__).with_name("releases.json")
"""Made by `make docs` from what `make compat` found."""
NOT_RUN: Final = "not run yet; a self-test at its start tells whether it is as it was"
"""What is known of a newer release where nothing of it has been tried."""


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, of 0.8.5.post1 the first three; none of another text."""
    match = re.match(r"\d{1,9}(\.\d{1,9})*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def names_release(version: str) -> bool:
    """Tell whether a version says which release it is: 0.1.dev1, of a build without tags, does not.

    A build between two releases calls itself 0.34.0.dev12, after the next one.
    """
    release = numbers(version)
    return bool(release) and not ("dev" in version and release < (0, 2))


def newest_run(implementation: str) -> str:
    """Return the newest release that was run; empty if none was."""
    return next(reversed(_releases().get(implementation, [])), "")


def releases_run(implementation: str) -> str:
    """Return the releases that were run, to be shown."""
    return ", ".join(_releases().get(implementation, [])) or "none"


def newer_than_run(implementation: Implementation, version: str, held: str = NOT_RUN) -> str:
    """Say that a release is newer than any that was run; return nothing if it is not.

    Args:
        held: what is known of it, such as how many of its fast paths hold.
    """
    newest = newest_run(implementation.name)
    if not newest or not names_release(version) or _padded(version) <= _padded(newest):
        return ""
    release = version.partition("+")[0]
    return (
        f"{implementation.title} {release} is newer than {newest}, the newest that was run: {held}"
    )


def _padded(version: str) -> tuple[int, ...]:
    """Return the numbers so that 0.33 and 0.33.0 compare equal."""
    return (*numbers(version), 0, 0, 0)[:3]


@functools.cache
def _releases() -> dict[str, list[str]]:
    releases: dict[str, list[str]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return releases
