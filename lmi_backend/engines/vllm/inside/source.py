"""The source of the installed vLLM, read without importing it: what is defined there, and where.

An import of vLLM takes seconds, and a name that has moved is found by its definition alone.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Final

_DEFINES: Final = r"^(?:class|def|async def) {0}\b|^{0}\b\s*(?::[^=\n]+)?=(?!=)"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """The modules of one installed package.

    Args:
        folder: of the package.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder.name

    @cached_property
    def _files(self) -> dict[str, Path]:
        """Every module by its dotted name."""
        found = {}
        for path in sorted(self.folder.rglob("*.py")):
            parts = path.relative_to(self.folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    def has_module(self, name: str) -> bool:
        """Tell whether a module is there."""
        return self.path(name) is not None

    @cache  # noqa: B019
    def place(self, module: str) -> str:
        """Return where a module is, also if its package, `vllm.v1` for one, has another name."""
        below = module.split(".")[2:]
        found = (each for each in self._files if each.split(".")[2:] == below and below[1:])
        return module if self.has_module(module) else next(found, module)

    def path(self, name: str) -> Path | None:
        """Return the file of a module."""
        path = self.folder.parent.joinpath(*name.split("."))
        for each in (path.with_suffix(".py"), path / "__init__.py"):
            if each.is_file():
                return each
        return None

    @cache  # noqa: B019  one object a process, or a command
    def tree(self, module: str) -> ast.Module | None:
        """Return the syntax tree of a module; None if there is none, or it cannot be read."""
        path = self.path(module)
        try:
            return ast.parse(path.read_bytes()) if path else None
        except (OSError, SyntaxError, ValueError):
            return None

    @cache  # noqa: B019
    def home(self, name: str, last_known: str) -> str | None:
        """Return the module that defines a name at its top level.

        Args:
            last_known: the module that had it. It is looked at first, and may have the name from
                another module. Else a module that others import is taken before one that is only a
                program, such as vLLM's example of a server; then the nearest one.
        """
        tree = self.tree(last_known)
        if tree is not None and any(name in _names(each) for each in _statements(tree)):
            return last_known
        defines = re.compile(_DEFINES.format(re.escape(name)).encode(), re.MULTILINE)
        nearby = ".".join(last_known.split(".")[:2]) + "."
        for is_near in (True, False):
            found = [
                module
                for module, path in self._files.items()
                if module.startswith(nearby) == is_near and defines.search(_bytes(path))
            ]
            if found:
                used = [
                    each for each in found if len(found) > 1 and self._is_imported(each, nearby)
                ]
                return min(used or found, key=lambda module: _distance(module, last_known))
        return None

    def _is_imported(self, module: str, nearby: str) -> bool:
        """Tell whether a module near it imports from a module."""
        imports = f"from {module} import ".encode()
        near = (path for each, path in self._files.items() if each.startswith(nearby))
        return any(imports in _bytes(path) for path in near)

    def calls(self, package: str, method: str) -> bool:
        """Tell whether a package calls a method, or any does where that has another name."""
        called = re.compile(rf"\.{re.escape(method)}\(".encode())
        start = f"{package}." if self.has_module(package) else ""
        found = (path for name, path in self._files.items() if name.startswith(start))
        return any(called.search(_bytes(path)) for path in found)

    def definition(self, module: str, name: str) -> ast.stmt | None:
        """Return the statement that defines a name in a module, through what it imports."""
        return self._defined(module, name)[1]

    def _defined(self, module: str, name: str) -> tuple[str, ast.stmt | None]:
        """Return that statement with the module where it stands."""
        for _ in range(8):  # a circle of imports
            tree = self.tree(module)
            statement = next(
                (each for each in _statements(tree) if name in _names(each)) if tree else iter(()),
                None,
            )
            if not isinstance(statement, ast.ImportFrom):
                return module, statement
            alias = next(each for each in statement.names if (each.asname or each.name) == name)
            module, name = self._imported(module, statement), alias.name
        return module, None

    def _imported(self, module: str, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        is_package = (path := self.path(module)) is not None and path.name == "__init__.py"
        parts = module.split(".")
        parts = parts[: len(parts) - statement.level + is_package]
        return ".".join([*parts, statement.module] if statement.module else parts)

    def lacks(self, module: str, class_name: str, member: str) -> bool:
        """Tell whether a class surely has no such member: not it, nor what it inherits from."""
        module, statement = self._defined(module, class_name)
        if not isinstance(statement, ast.ClassDef):
            return statement is None
        if member in members(statement):
            return False
        return all(self._inherits_no(module, base, member) for base in statement.bases)

    def _inherits_no(self, module: str, base: ast.expr, member: str) -> bool:
        """Tell whether a base surely gives a class no such member, but for an abstract one."""
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        module, known = self._defined(module, name)
        if isinstance(known, ast.ClassDef) and member in _abstract(known):
            return True
        return name in _NO_MEMBERS if known is None else self.lacks(module, name, member)

    def function(self, module: str, path: str) -> Function | None:
        """Return the definition of a function or method; None if it is none, or not there."""
        first, _, method = path.partition(".")
        statement = self.definition(module, first)
        if method and isinstance(statement, ast.ClassDef):
            statement = next((each for each in statement.body if method in _names(each)), None)
        return statement if isinstance(statement, Function) else None


_NO_MEMBERS: Final = {
    "object", "int", "str", "ABC", "Enum", "Generic", "IntEnum", "Protocol", "StrEnum", "Struct"
}  # fmt: skip


@lru_cache(maxsize=1)
def installed() -> Source:
    """Return the source of the vLLM of this interpreter.

    Raises:
        ModuleNotFoundError: it has none.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("vLLM is not installed", name="vllm")
    return Source(Path(next(iter(spec.submodule_search_locations))))


def required(function: Function) -> set[str]:
    """Return the parameters that must be given by name or place, but for self and cls."""
    given = function.args
    placed = [each.arg for each in (*given.posonlyargs, *given.args)]
    placed = placed[: len(placed) - len(given.defaults)]
    named = [
        each.arg
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default is None
    ]
    return {*placed, *named} - {"self", "cls"}


def problem_of_call(function: Function, arguments: Sequence[str]) -> str:
    """Return why a function cannot be called with these arguments; empty if it can.

    Args:
        arguments: in their order. `name=` is given by name, one with `?` only if the function has
            it, others by their places.
    """
    given = function.args
    placed = [each.arg for each in (*given.posonlyargs, *given.args)]
    if placed[:1] in (["self"], ["cls"]):
        placed = placed[1:]
    by_name = {each.rstrip("?=") for each in arguments if "=" in each}
    surely = {each.rstrip("=") for each in arguments if "=" in each and "?" not in each}
    count = sum("=" not in each for each in arguments)
    if count > len(placed) and given.vararg is None:
        return f"takes {len(placed)} arguments by place"
    if further := required(function) - set(placed[:count]) - by_name:
        return f"requires {', '.join(sorted(further))}"
    by_place = {each.arg for each in given.posonlyargs}
    taken = {*placed[count:], *(each.arg for each in given.kwonlyargs)} - by_place
    refused = by_name & by_place
    if given.kwarg is None:
        refused |= surely - taken
    return f"takes no {', '.join(sorted(refused))} by name" if refused else ""


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _distance(module: str, last_known: str) -> tuple[bool, int, int, str]:
    """Order modules: one of the same name first, then those that share more of the path."""
    ours, theirs = module.split("."), last_known.split(".")
    shared = sum(1 for _ in iter(_shared(ours, theirs)))
    return ours[-1] != theirs[-1], -shared, len(ours), module


def _shared(ours: list[str], theirs: list[str]) -> Iterator[str]:
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return
        yield one


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield what stands at the top level of a module, in its branches too."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If | ast.Try | ast.ExceptHandler):
            yield from _statements(child)
        elif isinstance(child, ast.stmt):
            yield child


def _names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    match statement:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {statement.name}
        case ast.Import() | ast.ImportFrom():
            return {each.asname or each.name for each in statement.names}
        case ast.Assign():
            return {each.id for each in statement.targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _abstract(class_: ast.ClassDef) -> set[str]:
    """Return the methods of a class that those below it must have themselves."""
    return {
        each.name
        for each in class_.body
        if isinstance(each, Function) and "abstractmethod" in map(ast.unparse, each.decorator_list)
    }


def members(class_: ast.ClassDef) -> set[str]:
    """Return what a class binds, and what its methods set on their object."""
    found = {name for each in _statements(class_) for name in _names(each)}
    for each in ast.walk(class_):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            found.add(each.attr)
    return found
