"""A library's source, read without importing it: its modules, and what a name in one stands for."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_FARTHEST: Final = 10
"""Modules that hand a name on, one to the next, before it counts as unknown."""
_DEEPEST: Final = 5
"""Names that stand for each other in a type."""
UNREADABLE: Final = (OSError, ValueError, SyntaxError, RecursionError, MemoryError)
"""What goes wrong with a library that cannot be read; nothing is known of it then."""
_TYPE_ALIAS: Final = getattr(ast, "TypeAlias", ())
"""The statement `type X = …`, since Python 3.12."""


@dataclass
class Module:
    """One file of a package, parsed."""

    name: str
    """Relative to the package: `engine.arg_utils`; empty for the package's own file."""
    tree: ast.Module
    is_folder: bool
    definitions: dict[str, ast.AST] = field(default_factory=dict)
    """Class, function, or the value assigned, by the name at the top of the module."""
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name to module and name there, of imports from the same package."""
    stars: list[str] = field(default_factory=list)
    """Modules whose names are all imported."""


class Package:
    """The source of an installed package; each file is read once, when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """Return a module by its name relative to the package; None if it cannot be read."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def module_in(self, file: str) -> Module | None:
        """Return a module by its file, relative to the package."""
        parts = Path(file).with_suffix("").parts
        return self.module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))

    def read_modules(self) -> list[Module]:
        """Return the modules that have been read so far."""
        return [module for module in self._modules.values() if module]

    def find(
        self, name: str, module: Module, _left: int = _FARTHEST
    ) -> tuple[ast.AST, Module] | None:
        """Return what a name in a module stands for, and the module that defines it."""
        if name in module.definitions:
            return module.definitions[name], module
        if not _left:
            return None
        if name in module.imports:
            places = [module.imports[name]]
        else:
            places = [(source, name) for source in module.stars]
        others = ((self.module(source), original) for source, original in places)
        found = (self.find(original, other, _left - 1) for other, original in others if other)
        return next(filter(None, found), None)

    def find_class(self, name: str, module: Module) -> tuple[ast.ClassDef, Module] | None:
        """Return the class that a name in a module stands for."""
        found = self.find(name, module)
        return (found[0], found[1]) if found and isinstance(found[0], ast.ClassDef) else None

    def resolve(self, node: ast.expr, module: Module, _left: int = _DEEPEST) -> ast.expr:
        """Return a type in which names of other types are replaced by what they stand for."""
        if isinstance(node, ast.Name):
            found = self.find(node.id, module) if _left else None
            if found and isinstance(found[0], (ast.Subscript, ast.BinOp, ast.Name)):
                return self.resolve(found[0], found[1], _left - 1)
        if isinstance(node, ast.BinOp):
            left = self.resolve(node.left, module, _left)
            return ast.BinOp(left, node.op, self.resolve(node.right, module, _left))
        if not isinstance(node, ast.Subscript):
            return node
        name = ast.unparse(node.value).rpartition(".")[2]
        members = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Annotated":
            return self.resolve(members[0], module, _left)
        resolved = [self.resolve(each, module, _left) for each in members]
        if name == "Literal":
            resolved = [word for each in resolved for word in _words(each)]
        inner = resolved[0] if len(resolved) == 1 else ast.Tuple(resolved, ast.Load())
        return ast.Subscript(node.value, inner, ast.Load())

    def _read(self, name: str) -> Module | None:
        path = self.folder.joinpath(*name.split(".")) if name else self.folder
        is_folder = path.is_dir()
        file = path / "__init__.py" if is_folder else path.with_name(f"{path.name}.py")
        try:
            with warnings.catch_warnings():
                # An engine's odd escape sequence is no business of who starts the server.
                warnings.simplefilter("ignore")
                tree = ast.parse(file.read_bytes())
        except UNREADABLE:
            return None
        module = Module(name, tree, is_folder)
        for statement in _statements(tree.body):
            _define(statement, module, self.folder.name)
        return module


def texts_in(nodes: Iterable[ast.expr | None]) -> list[str]:
    """Return the constants among expressions that are texts."""
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def _words(node: ast.expr) -> list[ast.expr]:
    """Return the values of a `Literal`, or the node itself."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value) != "Literal":
        return [node]
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, with those in `if` and `try`."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _statements(statement.body)
            # Names for checkers of types say more than what stands in for them.
            yield from _statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            handled = [each for handler in statement.handlers for each in handler.body]
            yield from _statements([*statement.body, *handled, *statement.orelse])
        else:
            yield statement


def _define(statement: ast.stmt, module: Module, package: str) -> None:
    """Note what a statement defines; the first definition of a name counts."""
    define = module.definitions.setdefault
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        define(statement.name, statement)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id not in module.imports:
                define(target.id, statement.value)
    elif isinstance(statement, _TYPE_ALIAS):
        define(statement.name.id, statement.value)
    elif isinstance(statement, ast.ImportFrom):
        source = _source(statement, module, package)
        for alias in statement.names if source is not None else ():
            if alias.name == "*":
                module.stars.append(source or "")
            else:
                module.imports.setdefault(alias.asname or alias.name, (source or "", alias.name))


def _source(statement: ast.ImportFrom, module: Module, package: str) -> str | None:
    """Return the module that is imported from, relative to the package; None outside it."""
    name = statement.module or ""
    if statement.level:
        parents = module.name.split(".") if module.name else []
        up = statement.level - module.is_folder
        parents = parents[: len(parents) - up] if up else parents
        return ".".join([*parents, *([name] if name else [])])
    first, _, rest = name.partition(".")
    return rest if first == package else None
