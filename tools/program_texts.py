"""What the program says, by its syntax trees: log lines, errors, docstrings and names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

CODE: Final = "X"
_LEAST_WORDS: Final = 3
_PLACEHOLDER: Final = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
# What a docstring says of one argument or exception.
_NAMED: Final = re.compile(r"^ {4}(?=\*{0,2}[\w.]+(?: \([^)]*\))?: )", re.MULTILINE)
_Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def spoken_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each text of some words that is no docstring, with its line; values are written X.

    Which of them a log line or an error shows is seldom to be seen where they stand.
    """
    tree = ast.parse(source)
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(node.value)
        if isinstance(node, ast.JoinedStr):
            inner.update(node.values)
        if not isinstance(node, ast.expr) or node in inner:
            continue
        if len((text := _text(node)).split()) >= _LEAST_WORDS:
            yield node.lineno, text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _PLACEHOLDER.sub(CODE, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part) if isinstance(part, ast.Constant) else CODE for part in node.values
        )
    return ""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstring of each module, class and function, with its line."""
    return _docstrings(ast.parse(source))


def field_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the text below each constant, field and attribute, with its line."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for before, each in pairwise(body if isinstance(body, list) else ()):
            is_text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            if is_text and isinstance(before, ast.Assign | ast.AnnAssign):
                yield each.lineno, inspect.cleandoc(str(each.value.value))


def given_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield each name that a module gives to something, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.MatchAs(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield node.lineno, name


def _docstrings(node: _Documented) -> Iterator[tuple[int, str]]:
    if (text := ast.get_docstring(node, clean=False)) is not None:
        yield node.body[0].lineno, _NAMED.sub("- ", inspect.cleandoc(text))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for each in node.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(each)
