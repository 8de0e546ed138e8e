"""Check the first lines of the commits that a branch adds, or of the latest: `area: imperative`.

python tools/check_subjects.py [BASE]
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 60
MAIN: Final = ("origin/main", "main")
_SHAPE: Final = re.compile(r"[a-z][\w/.-]*(?:, [\w/.-]+)*: (\w[\w'-]*) .*[^.]")
_VERB: Final = re.compile(r"[a-z].*(?<!ing)(?<!ed)(?<![^su]s)|need|speed|feed|seed|bring")
"""What an imperative may be: no past, no participle, and no third person or plural."""


def wrong(subject: str) -> str:
    """Return what is wrong with the first line of a commit; empty if nothing is."""
    if len(subject) > LONGEST:
        return f"has {len(subject)} letters ({LONGEST}): say why in the body"
    if (match := _SHAPE.fullmatch(subject)) is None:
        return "is not `area: imperative`, such as `pool: choose the worker that has the prefix`"
    if not _VERB.fullmatch(match[1]):
        return f"begins with {match[1]!r}, which is no imperative in lower case"
    return ""


def commits_of(*revisions: str) -> Iterator[tuple[str, str]]:
    """Yield the short name and the first line of each commit."""
    command = ("git", "log", "--no-merges", "--format=%h %s", *revisions)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        name, _, subject = line.partition(" ")
        yield name, subject


def _base() -> str | None:
    """Return the branch that this one leaves; None in a copy without history."""
    for name in MAIN:
        command = ("git", "rev-parse", "--verify", "--quiet", name)
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return name
    return None


def main(arguments: list[str]) -> int:
    if (base := arguments[0] if arguments else _base()) is None:
        sys.stdout.write("subjects: there is no main to compare with\n")
        return 0
    commits = [*commits_of(f"{base}..HEAD")] or [*commits_of("-30", "HEAD")]  # on main itself
    lines = [f"{name}: {text!r} {why}\n" for name, text in commits if (why := wrong(text))]
    sys.stdout.writelines(lines or [f"subjects: {len(commits)} commits are plain\n"])
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
