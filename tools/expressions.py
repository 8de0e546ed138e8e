"""Find the package's regular expressions, and texts on which one that is not linear takes long."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import lmi_backend

try:
    parser: ModuleType = importlib.import_module("re._parser")
except ImportError:  # Python 3.10
    parser = importlib.import_module("sre_parse")

FOLDER = Path(lmi_backend.__file__).parent
METHODS = frozenset({"match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split"})
FILLERS = ("a", "0", " ", "\n", "-", "_", '"', "'", "\\", "[", "(", "{", "{{", "=", "a=", "{#", "é")


class Use(NamedTuple):
    """An expression, and how it is used."""

    place: str
    pattern: re.Pattern[Any]
    method: str

    def run(self, text: Any) -> None:
        """Look for it in a text, to the text's end."""
        if self.method in ("sub", "subn"):
            self.pattern.sub(type(text)(), text)
        elif self.method == "finditer":
            list(self.pattern.finditer(text))
        else:
            getattr(self.pattern, self.method)(text)


def uses() -> tuple[list[Use], list[str]]:
    """Return each use of an expression in the package, and places that make one as they run."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(FOLDER.rglob("*.py"))}
    everywhere = _methods(trees.values())
    found, made = [], []
    for path, tree in trees.items():
        if "re" not in _imports(tree):
            continue
        place = ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
        for name, pattern in _compiled(importlib.import_module(place)):
            methods = _methods([tree]) if name.startswith("_") else everywhere
            called = sorted(methods.get(name, METHODS))
            found += [Use(f"{place}.{name}", pattern, method) for method in called]
        for call in _calls_in_functions(tree):
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if isinstance(call.args[0], ast.Constant):
                pattern = re.compile(call.args[0].value, _flags(call))
                used = "search" if method == "compile" else method
                found.append(Use(f"{place} {pattern.pattern!r}", pattern, used))
            else:
                made.append(f"{place}: {ast.unparse(call)}")
    return found, made


def _imports(tree: ast.AST) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    return {alias.name for node in nodes for alias in node.names}


def _methods(trees: Iterable[ast.AST]) -> dict[str, set[str]]:
    """Return the methods that are called on each name, wherever that is."""
    found: dict[str, set[str]] = {}
    for node in (each for tree in trees for each in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            name = getattr(node.value, "id", getattr(node.value, "attr", ""))
            found.setdefault(name, set()).add(node.attr)
    return found


def _compiled(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    for name, value in vars(module).items():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, re.Pattern):
                yield name, each


def _calls_in_functions(tree: ast.AST) -> Iterator[ast.Call]:
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    for node in (each for function in functions for each in ast.walk(function)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            is_of_re = isinstance(called.value, ast.Name) and called.value.id == "re"
            if is_of_re and called.attr in METHODS | {"compile"}:
                yield node


def _flags(call: ast.Call) -> int:
    words = [ast.unparse(each) for each in (*call.args, *(k.value for k in call.keywords))]
    flags = [getattr(re, word.removeprefix("re.")) for word in words if word.startswith("re.")]
    return sum(map(int, flags))


def hostile(pattern: re.Pattern[Any]) -> set[tuple[str, str]]:
    """Return beginnings of texts, and what is written over and over behind them.

    Both are made of the expression itself: what fits its beginning, and what fits a part of it.
    """
    text = (
        pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    )
    flags = pattern.flags & ~re.UNICODE
    pieces = {("", filler) for filler in FILLERS}
    for before, sequence in _sequences("", parser.parse(text, flags)):
        parts = [_samples(node) for node in _joined(sequence)]
        for start in range(len(parts)):
            so_far = before + "".join(part[0] for part in parts[:start])
            for end in range(start + 1, len(parts) + 1):
                first, *more = parts[start:end]
                rest = "".join(part[0] for part in more)
                pieces |= {(so_far, each + rest) for each in first if each + rest}
            pieces |= {(so_far, filler) for filler in FILLERS[:4]}
    return pieces


def _sequences(before: str, sequence: Any) -> Iterator[tuple[str, Any]]:
    """Yield a sequence of the parsed expression and those within it, with what fits before each."""
    yield before, sequence
    for node in _joined(sequence):
        for inner in _inner(node):
            yield from _sequences(before, inner)
        before += _samples(node)[0]


def _inner(node: Any) -> list[Any]:
    kind, value = str(node[0]), node[1]
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [value[2]]
    if kind == "SUBPATTERN":
        return [value[3]]
    if kind == "BRANCH":
        return list(value[1])
    if kind in ("ASSERT", "ASSERT_NOT"):
        return [value[1]]
    return [value] if kind == "ATOMIC_GROUP" else []


def _joined(sequence: Any) -> Iterator[Any]:
    """Yield the nodes of a sequence; letters that follow each other are one."""
    letters = ""
    for node in sequence:
        if str(node[0]) == "LITERAL":
            letters += chr(node[1])
            continue
        if letters:
            yield "TEXT", letters
        letters = ""
        yield node
    if letters:
        yield "TEXT", letters


def _samples(node: Any) -> list[str]:
    """Return texts that fit a node, one at least; empty for what has no width."""
    kind, value = str(node[0]), node[1]
    match kind:
        case "TEXT":
            found = [value]
        case "IN":
            found = _members(value)
        case "ANY" | "NOT_LITERAL":
            found = ["a" if value != ord("a") else "b", "\\"]
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            found = [_sample(value[2]) * max(1, value[0]), *_branches(value[2])]
        case "SUBPATTERN" | "ATOMIC_GROUP":
            found = _branches(_inner(node)[0])
        case "BRANCH":
            found = [_sample(each) for each in value[1]]
        case _:
            found = [""]
    return found


def _branches(sequence: Any) -> list[str]:
    nodes = list(_joined(sequence))
    return _samples(nodes[0]) if len(nodes) == 1 else [_sample(sequence)]


def _sample(sequence: Any) -> str:
    return "".join(_samples(node)[0] for node in _joined(sequence))


def _members(items: Any) -> list[str]:
    """Return characters of a class: one of each kind that it names."""
    found, others = [], "a0 \n-\0"
    for item in items:
        kind, value = str(item[0]), item[1]
        if kind == "LITERAL":
            found.append(chr(value))
        elif kind == "RANGE":
            found.append(chr(value[0]))
        elif kind == "CATEGORY":
            found.append(next(c for c in others if re.match(_CATEGORIES[str(value)], c)))
    if items and str(items[0][0]) == "NEGATE":
        return [c for c in others + "\\" if c not in found][:3]
    return found[:4]


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip
