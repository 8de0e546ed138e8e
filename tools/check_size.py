"""Check the house numbers: files of one subject, short functions, few parameters, flat code.

python tools/check_size.py [FOLDER…]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 700
FUNCTION_LINES = 50
PARAMETERS = 6
NESTING = 3
VAGUE = frozenset({"utils", "helpers", "common", "misc"})
# The scope is called so in LMI's own documents.
NAMED_FOR_A_REASON = "options/table/common.py"

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def main(arguments: list[str]) -> int:
    folders = [Path(argument) for argument in arguments or ["lmi_backend", "tools"]]
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    violations = [line for path in paths for line in check(path)]
    sys.stdout.write("".join(f"{line}\n" for line in violations))
    if not violations:
        sys.stdout.write(f"sizes: {len(paths)} files within the house numbers\n")
    return 1 if violations else 0


def check(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if (lines := len(text.splitlines())) > FILE_LINES:
        yield f"{path}:1: file of {lines} lines ({FILE_LINES})"
    if path.stem in VAGUE and not path.as_posix().endswith(NAMED_FOR_A_REASON):
        yield f"{path}:1: a module named {path.stem} says nothing"
    for node in ast.walk(ast.parse(text)):
        is_async = "import asyncio" in text
        if isinstance(node, ast.ExceptHandler) and is_async and _misses_asyncios(node):
            yield f"{path}:{node.lineno}: on Python 3.10 asyncio.TimeoutError is another class"
        if isinstance(node, _Function):
            yield from (f"{path}:{node.lineno}: {node.name}: {what}" for what in _function(node))


def _misses_asyncios(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler takes a timeout of the system's calls alone."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(each) for each in caught if each}
    return "TimeoutError" in names and "asyncio.TimeoutError" not in names


def _function(node: _Function) -> Iterator[str]:
    if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES:
        yield f"{lines} lines ({FUNCTION_LINES})"
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in _SELF]
    if len(names) > PARAMETERS:
        yield f"{len(names)} positional parameters ({PARAMETERS})"
    if (depth := _depth(node.body)) > NESTING:
        yield f"nested {depth} deep ({NESTING})"


_SELF = frozenset({"self", "cls"})


def _depth(body: list[ast.stmt]) -> int:
    """Return how deep statements nest; an `elif` is no deeper than its `if`."""
    return max((_statement_depth(statement) for statement in body), default=0)


def _statement_depth(statement: ast.stmt) -> int:
    if not isinstance(statement, _NESTING):
        return 0
    inner = [_depth(body) for body in _bodies(statement)]
    if isinstance(statement, ast.If) and _is_elif(statement):
        return max(1 + inner[0], _statement_depth(statement.orelse[0]))
    return 1 + max(inner)


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for name in ("handlers", "cases"):
        yield from (part.body for part in getattr(statement, name, []))


def _is_elif(statement: ast.If) -> bool:
    return len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
