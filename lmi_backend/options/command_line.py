"""What text may set of a library, read from the source of its command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.options.argument_types import literal_words, member_names, members_of
from lmi_backend.options.class_fields import ClassField, class_fields
from lmi_backend.options.package_source import Module, Package, texts_in

if TYPE_CHECKING:
    from lmi_backend.options.engine_spec import ArgumentSource

_CONFIGS: Final = ("config", "dataclass")
"""Decorators of classes that are given as JSON objects."""
_PREFIX: Final = re.compile(r"--[\w-]*-")


class CommandLine:
    """The command line of a library: its engine's arguments, and those of its own HTTP server."""

    def __init__(self, package: Package, module: Module, source: ArgumentSource) -> None:
        self._package, self._module, self._source = package, module, source
        nodes = list(ast.walk(module.tree))
        added = list(_flags(nodes))
        self._flags = {name: flag for name, _, flag in added}
        self.spellings = {
            other: name for name, others, _ in added for other in others if other != name
        }
        """Further names of flags to the arguments that they set."""
        self._unpacked = dict(_unpacked(nodes))
        constants = (node for node in nodes if isinstance(node, ast.Constant))
        self._written = {text for text in texts_in(constants) if text.startswith("--")}

    def type_of(self, name: str, field: ClassField) -> ast.expr:
        """Return the type of an argument; if that is any text, the values of its flag."""
        declared = self._package.resolve(field.type, field.module)
        flag = self._flags.get(name)
        if flag is None or member_names(declared) - {"str", "None"}:
            return declared
        shown = self._type_of_flag(flag)
        if shown is None or "str" in member_names(shown) or not _literals(shown):
            return declared
        is_optional = "None" in member_names(declared) and "None" not in member_names(shown)
        return ast.BinOp(shown, ast.BitOr(), ast.Constant(None)) if is_optional else shown

    def has_flag(self, name: str) -> bool:
        """Tell whether a flag sets an argument; one whose source shows no flags has them all."""
        is_written = f"--{name.replace('_', '-')}" in self._written
        return is_written or name in self._flags or not self._written

    def type_in(self, field: ClassField) -> ast.expr:
        """Return the type of a key of an object; of one that is changed first nothing is known."""
        if field.is_changed:
            return ast.Name("Any", ast.Load())
        return self._package.resolve(field.type, field.module)

    def objects(
        self, arguments: Mapping[str, ClassField]
    ) -> Iterator[tuple[str, dict[str, ClassField]]]:
        """Yield the arguments that are objects of a class, with the fields of the class."""
        for name, field in arguments.items():
            declared = self._package.resolve(field.type, field.module)
            classes = [node.id for node in ast.walk(declared) if isinstance(node, ast.Name)]
            for each in (*classes, self._unpacked.get(name, "")):
                found = self._package.find_class(each, self._module)
                if found and _is_config(found[0]):
                    yield name, class_fields(each, self._module, self._package)
                    break

    def words(self, types: Mapping[str, ast.expr]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the arguments whose values are in a registry, with these values."""
        for name in self._source.registered:
            words = _literals(types[name]) if name in types else []
            if words and "str" in member_names(types[name]):
                yield name, tuple(map(str, words))
        for name, registry in self._source.registries.items():
            if names := self._registered(registry):
                yield name, tuple(dict.fromkeys(names))

    def server(
        self, listening: Collection[str] = ()
    ) -> tuple[dict[str, ClassField], tuple[str, ...]]:
        """Return the arguments of the library's HTTP server, and those of its listener alone.

        The library keeps the two apart: what inherits from the arguments of the application adds
        host, port, certificates and the like. Of one that keeps them together, `listening` says
        which are the listener's.
        """
        name, pattern = self._source.server
        for file in sorted(self._package.folder.glob(pattern)) if pattern else ():
            text = file.read_bytes()
            # Where it has no base, no bracket follows its name.
            if not any(f"class {name}{end}".encode() in text for end in "(:"):
                continue
            module = self._package.module_in(str(file.relative_to(self._package.folder)))
            found = self._package.find_class(name, module) if module else None
            if module and found:
                bases = [base.id for base in found[0].bases if isinstance(base, ast.Name)]
                fields: dict[str, ClassField] = {}
                for base in bases:
                    fields |= class_fields(base, module, self._package)
                every = class_fields(name, module, self._package)
                listener = every.keys() - fields.keys()
                if not fields:
                    listener &= set(listening)
                    fields = {key: every[key] for key in every if key not in listener}
                return fields, tuple(sorted(listener))
        return {}, ()

    def opposites(self, types: Mapping[str, ast.expr]) -> Iterator[tuple[str, str]]:
        """Yield the flag that turns a boolean argument off, where it is not `--no-…`, with it."""
        pairs = list(self._prefixes())
        for name, kind in types.items():
            flag, lone = f"--{name.replace('_', '-')}", self._flags.get(name, _Flag()).is_lone
            is_pair = "bool" in member_names(kind) and not lone
            for prefix, inverse in pairs if is_pair else ():
                if flag.startswith(prefix):
                    other = inverse + flag.removeprefix(prefix)
                    yield other.removeprefix("--").replace("-", "_"), name

    def _type_of_flag(self, flag: _Flag) -> ast.expr | None:
        if flag.choices:
            words = ast.Tuple([ast.Constant(word) for word in flag.choices], ast.Load())
            return ast.Subscript(ast.Name("Literal", ast.Load()), words, ast.Load())
        fields = class_fields(flag.config, self._module, self._package) if flag.config else {}
        field = fields.get(flag.field)
        return self._package.resolve(field.type, field.module) if field else None

    def _registered(self, registry: str) -> list[str]:
        """Return the names that the modules next to a registry's class register with it."""
        importers = (each for each in self._package.read_modules() if registry in each.imports)
        found = next((self._package.find_class(registry, each) for each in importers), None)
        if found is None:
            return []
        home = self._package.folder.joinpath(*found[1].name.split(".")).parent
        names: list[str] = []
        for file in sorted(home.glob("*.py")):
            if f"{registry}.register".encode() in file.read_bytes():
                module = self._package.module_in(str(file.relative_to(self._package.folder)))
                names += _registrations(module, registry) if module else []
        return names

    def _prefixes(self) -> Iterator[tuple[str, str]]:
        """Yield the prefixes of flags that turn each other over."""
        found = self._package.find_class("FlexibleArgumentParser", self._module)
        tables = (
            each
            for node in ast.walk(found[1].tree if found else ast.Module([], []))
            if isinstance(node, ast.ClassDef)
            and "BooleanOptionalAction" in map(ast.unparse, node.bases)
            for each in ast.walk(node)
            if isinstance(each, ast.Dict)
        )
        for table in tables:
            pairs = zip(texts_in(table.keys), texts_in(table.values), strict=False)
            yield from (pair for pair in pairs if all(map(_PREFIX.fullmatch, pair)))


@dataclass(frozen=True)
class _Flag:
    """What the source says where it adds a flag."""

    config: str = ""
    """The class whose field describes the flag."""
    field: str = ""
    choices: tuple[str, ...] = ()
    is_lone: bool = False
    """Whether it is given without a value and has no opposite."""


def _flags(nodes: list[ast.AST]) -> Iterator[tuple[str, list[str], _Flag]]:
    """Yield the argument that each flag sets that a module adds, the flag's names, and the flag."""
    tables = {
        target.id: node.value.args[0].id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "get_kwargs"
        and isinstance(node.value.args[0], ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            flags = (text for text in texts_in(node.args) if text.startswith("--"))
            names = [text.removeprefix("--").replace("-", "_") for text in flags]
            given = {word.arg: word.value for word in node.keywords if word.arg}
            name = next(iter(texts_in([given.get("dest")]) or names), "")
            if name:
                yield name, names, _flag(node, given, tables)


def _flag(call: ast.Call, given: Mapping[str, ast.expr], tables: Mapping[str, str]) -> _Flag:
    choices = given.get("choices")
    if texts_in([given.get("action")]):
        return _Flag(is_lone=True)
    if isinstance(choices, (ast.List, ast.Tuple)):
        return _Flag(choices=tuple(texts_in(choices.elts)))
    # With changes: **{**cache_kwargs["x"], "default": None}
    described = (
        (node.value.id, field)
        for word in call.keywords
        if word.arg is None
        for node in ast.walk(word.value)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
        for field in texts_in([node.slice])
    )
    return next(
        (_Flag(tables[table], field) for table, field in described if table in tables), _Flag()
    )


def _unpacked(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the arguments that are unpacked into a class: `SpeculativeConfig(**self.x)`."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            values = (word.value for word in node.keywords if word.arg is None)
            yield from (
                (value.attr, node.func.id) for value in values if isinstance(value, ast.Attribute)
            )


def _is_config(node: ast.ClassDef) -> bool:
    calls = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return any(ast.unparse(each).rpartition(".")[2] in _CONFIGS for each in calls)


def _literals(kind: ast.expr) -> list[object]:
    return [word for member in members_of(kind) for word in literal_words(member)]


def _registrations(module: Module, registry: str) -> Iterator[str]:
    """Yield the names under which a module registers something."""
    is_table = False
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if ast.unparse(node.func.value) != registry or not node.func.attr.startswith("register"):
            continue
        given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
        lists = [
            each for one in given if isinstance(one, (ast.List, ast.Tuple)) for each in one.elts
        ]
        yield from texts_in([*given, *lists])
        is_table |= any(isinstance(each, ast.Name) for each in given)
    for node in module.definitions.values() if is_table else ():
        if isinstance(node, ast.Dict):
            yield from texts_in(node.keys)
