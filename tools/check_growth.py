"""Check that the work on hostile texts grows with their length and no faster: `make growth`.

python tools/check_growth.py

The texts are for the package's regular expressions and for the bounds of structured outputs. A
clock judges, so these are no tests. Steps cannot be counted instead: `re` and `str` work in C.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from expressions import Use, hostile, uses

from lmi_backend.errors import RequestError
from lmi_backend.structures import DEFAULT_BOUNDS, check_structures

_SMALL: Final = (8, 12, 16, 20, 24, 28, 32, 40)
"""Sizes at which exponential work is seen, and ends."""
_TRIALS: Final = 3
_END: Final = "\0"
"""Fits nothing in most expressions: what was read is then read in each other way."""
PLANTED: Final = (
    r"AWS4-HMAC-SHA256 .*?Credential=([^/,\s]+)/",
    r"\{\s*(\d*)\s*,?\s*(\d*)\s*\}",
    r"\[\^?(?:\\.|[^\]\\])*\]",
    r"(a+)+b",
    r"(\w+\s?)*$",
    r"(^|_)(max|min)_(\w+_)?token$",
    r"\s+$",
)
"""Expressions that are not linear: a check that misses one of them is broken."""
OF_CLIENTS: Final = (
    "frontend.http.access._HOST",
    "names._CONTROLS",
    "structures._REPETITION",
    "redaction._KEYS",
)
"""Expressions for texts of clients: a check that misses one of them is broken."""
MADE: Final = ("machine", "pool.diagnosis", "redaction")
"""Modules that make expressions as they run, of our own or escaped texts. None reads what a client
wrote."""
PIECES: Final = (
    "a", "a{", "a{ ", "{", "{1", "{1,", "{#", "{//", "a{0}", "a{1,2}{", "(", "()", "(?:", "(?x)(",
    "[", "[a]", "[^]", "[\\", "]", "\\", "\\\\", "\\d", "\\u{", "\\u{1}", "a|", "?", "a?", "*",
    "a+", "~", "~1", '"', "'", ",", "9", "9,", " ", "\t", "\n", "\r\n", "\u2028", "\u00a0", "# a\n",
    "// a\n", "a ::= b\n", "é", "\U0001f600", "\ud800",
)  # fmt: skip
"""Pieces of hostile patterns and grammars."""
STARTS: Final = ("a{", "(?x)({#", "[")
SCHEMAS: Final[dict[str, Callable[[int], Any]]] = {
    "references": lambda size: {"a": [{"$ref": "#/a"}] * min(2000, size // 20)},
    "a long reference": lambda size: {"$ref": "#" + "/a" * (size // 2)},
    "patterns": lambda size: {f"{n}": {"pattern": ""} for n in range(size // 20)},
    "keys of patterns": lambda size: {"patternProperties": {f"{n}(": 1 for n in range(size // 8)}},
    "lists": lambda size: [[[]] * min(2000, size // 100)] * 40,
    "numbers": lambda size: [[1.5] * min(2000, size // 200)] * 40,
    "members": lambda size: {f"{number}": None for number in range(size // 12)},
    "alternatives": lambda size: {"anyOf": [{"const": "a"}] * min(2000, size // 20)},
    "deep": lambda size: json.loads('{"a":' * 60 + '"' + "b" * size + '"' + "}" * 60),
}


def main() -> int:
    found, made = uses()
    problems = [*_blind(found, made), *_expressions(found), *_structures(), *_schemas()]
    sys.stdout.write("".join(f"{line}\n" for line in problems))
    if not problems:
        sys.stdout.write(f"growth: {len(found)} expressions and all structures are linear\n")
    return 1 if problems else 0


def _blind(found: list[Use], made: list[str]) -> Iterator[str]:
    """Yield what this check must see and does not."""
    for planted in PLANTED:
        use = Use("", re.compile(planted), "search")
        # Other programs may slow the smaller text down.
        if not any(slow_on(use) for _ in range(_TRIALS)):
            yield f"{planted} is not linear, and passes"
    places = {use.place.partition(" ")[0].removeprefix("lmi_backend.") for use in found}
    yield from (f"{name} is not found" for name in OF_CLIENTS if name not in places)
    modules = [place.partition(": re.")[0].removeprefix("lmi_backend.") for place in made]
    if tuple(modules) != MADE:
        yield f"tools/check_growth.py: MADE is {MADE}, found are {made}"


def _expressions(found: list[Use]) -> Iterator[str]:
    for use in found:
        if text := slow_on(use):
            yield f"{use.place}.{use.method} takes long on {text!r}"


def slow_on(use: Use) -> str | None:
    """Return how a text begins on which an expression is not linear; None where there is none."""
    is_bytes = isinstance(use.pattern.pattern, bytes)
    for start, piece in sorted(hostile(use.pattern)):

        def work(size: int, start: str = start, piece: str = piece) -> None:
            text = start + piece * (size // len(piece)) + _END
            use.run(text.encode("utf-8", "replace") if is_bytes else text)

        if too_slow(work, 20_000, 0.02):
            return f"{start}{piece * 3}…"
    return None


def _structures() -> Iterator[str]:
    """Yield patterns and grammars of the largest size whose check takes long."""
    for kind in ("regex", "grammar", "json"):
        for start, piece in ((start, piece) for start in STARTS for piece in PIECES):

            def work(size: int, kind: str = kind, start: str = start, piece: str = piece) -> None:
                _check({kind: start + piece * (size // len(piece))})

            if too_slow(work, 130_000, 0.3):
                yield f"check_structures takes long on {kind} {start + piece * 3!r}…"


def _schemas() -> Iterator[str]:
    """Yield schemas of the largest size whose check takes long, as objects and as JSON."""
    for name, schema in SCHEMAS.items():
        for write in (_as_it_is, json.dumps):
            if too_slow(partial(_check_schema, schema, write), DEFAULT_BOUNDS.size, 0.3):
                yield f"check_structures takes long on a schema: {name}, {write.__name__}"


def _as_it_is(value: Any) -> Any:
    return value


def _check_schema(schema: Callable[[int], Any], write: Callable[[Any], Any], size: int) -> None:
    _check({"json": write(schema(size))})


def _check(structures: dict[str, Any]) -> None:
    """Check structures, refused or not: both must be quick."""
    with contextlib.suppress(RequestError):
        check_structures(structures, DEFAULT_BOUNDS)


def too_slow(work: Callable[[int], object], last: int, seconds: float) -> int | None:
    """Return the first size for which work takes too much time of a core; None where none does.

    Too much is more than twice what a quarter of the size explains. Below `seconds` nothing is
    measured: collections of garbage take as long.
    """
    return next((size for size in _sizes(last) if _takes_each_time(work, size, seconds)), None)


def _sizes(last: int) -> Iterator[int]:
    """Yield sizes up to `last`, the later ones four times as large as the one before."""
    size = _SMALL[-1]
    yield from _SMALL
    while (size := size * 4) < last:
        yield size
    yield last


def _takes_each_time(work: Callable[[int], object], size: int, seconds: float) -> bool:
    return all(_takes(work, size, seconds) for _ in range(_TRIALS))


def _takes(work: Callable[[int], object], size: int, seconds: float) -> bool:
    # Twice, for a collection of garbage may come in between.
    took = _time(work, size)
    if took <= seconds or (took := min(took, _time(work, size))) <= seconds:
        return False
    return took > 8 * min(_time(work, size // 4) for _ in range(3))


def _time(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
