"""Of which Python an environment is made."""

import pytest

from tools.interpreters import Interpreter, best


def of(path: str, seconds: float, version: tuple[int, int] = (3, 11), *lacks: str) -> Interpreter:
    return Interpreter(path, version, seconds, lacks)


CALLED = of("/pyenv/python3.11", 0.015)
FAST = of("/usr/bin/python3.11", 0.010)
BARE = of("/usr/bin/python3.11", 0.010, (3, 11), "the module ensurepip", "libpython3.11.so.1.0")
NEW = of("/opt/python3.13", 0.008, (3, 13))


@pytest.mark.parametrize(
    ("found", "chosen", "notes"),
    [
        ([CALLED, of("/usr/bin/python3.12", 0.014, (3, 12))], CALLED, []),
        ([CALLED, FAST], FAST, ["1.5 times as fast as /pyenv/python3.11"]),
        ([NEW, CALLED, FAST], FAST, ["/opt/python3.13 is Python 3.13, which is not supported"]),
        ([CALLED, BARE], CALLED, ["but lacks the module ensurepip and libpython3.11.so.1.0"]),
        ([BARE, CALLED], CALLED, ["lacks the module ensurepip and", "would be 1.5 times"]),
        ([BARE], BARE, []),
    ],
)
def test_the_fastest_that_can_be_used_is(
    found: list[Interpreter], chosen: Interpreter, notes: list[str]
) -> None:
    path, lines = best(found)
    assert path == chosen.path
    assert [part for part, line in zip(notes, lines, strict=True) if part in line] == notes
