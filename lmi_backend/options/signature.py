"""Which arguments an engine takes, read from its source: importing vLLM takes 15 seconds."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from lmi_backend.options.class_fields import REQUIRED, TEXT_LIMIT, ClassField, class_fields, shorten
from lmi_backend.options.command_line import CommandLine
from lmi_backend.options.engine_spec import ArgumentSource, implementations
from lmi_backend.options.installation import locate, plugins_in, version_in
from lmi_backend.options.package_source import UNREADABLE, Module, Package

__all__ = [
    "NO_FLAG",
    "REQUIRED",
    "TEXT_LIMIT",
    "Argument",
    "Signature",
    "installed_signature",
    "installed_version",
    "read_package",
    "recorded_signature",
    "shorten",
    "signature",
]

NO_FLAG = "no flag"
RECORDS = Path(__file__).with_name("signatures")
_V = TypeVar("_V")


@dataclass(frozen=True)
class Argument:
    """One argument of an engine, as short texts for people."""

    type: str
    default: str
    """Source text if read from an installation, the value if read from our record."""
    flag: str = ""
    """NO_FLAG if the engine's command line has none for it, so that no text can set it."""


@dataclass(frozen=True)
class Signature:
    """What one version of an engine takes."""

    engine: str
    version: str
    """Empty if the installation does not say."""
    arguments: Mapping[str, Argument]
    """In the order of their declaration."""
    is_recorded: bool
    """Whether it is our record's, perhaps of another version than will run."""
    ended_models: Mapping[str, str] = field(default_factory=dict)
    """Architecture to the last version that served it."""
    replaced_models: Mapping[str, str] = field(default_factory=dict)
    """The same of those that are tried by other code since."""
    models: frozenset[str] = frozenset()
    """Architectures that the library has code for; empty if that is not known."""
    objects: Mapping[str, Mapping[str, Argument]] = field(default_factory=dict)
    """Argument that is an object to the keys it may have, with their types."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Argument of any text to the values that the engine knows, without those of plugins."""
    server: Mapping[str, Argument] = field(default_factory=dict)
    """Arguments of the engine's own HTTP server that are not its listener's."""
    listener: tuple[str, ...] = ()
    """Arguments of the listener, which is not started: host, port and the like."""
    opposites: Mapping[str, str] = field(default_factory=dict)
    """Flag that turns an argument off to the argument: `disable_x` to `enable_x`."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Further name of a flag to the argument that it sets."""
    plugins: tuple[str, ...] = ()
    """Installed distributions that may add values."""


def signature(implementation: str, python: str) -> Signature | None:
    """Return the installed signature, else the recorded one, else None: an unknown engine."""
    return installed_signature(implementation, python) or recorded_signature(implementation)


def _source(implementation: str) -> ArgumentSource | None:
    known = implementations().get(implementation)
    return known.source if known else None


@functools.cache
def recorded_signature(implementation: str) -> Signature | None:
    """Return what we noted about the version that we were tested with."""
    file = RECORDS / f"{implementation}.json"
    if not file.is_file():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    return Signature(
        implementation,
        record["version"],
        _arguments(record["arguments"]),
        is_recorded=True,
        ended_models=_frozen(record.get("ended_models", {})),
        replaced_models=_frozen(record.get("replaced_models", {})),
        objects=_frozen(
            {
                name: _arguments({key: [kind, ""] for key, kind in keys.items()})
                for name, keys in record.get("objects", {}).items()
            }
        ),
        words=_frozen({name: tuple(each) for name, each in record.get("words", {}).items()}),
        server=_arguments(record.get("server", {})),
        listener=tuple(record.get("listener", ())),
        opposites=_frozen(record.get("opposites", {})),
        spellings=_frozen(record.get("spellings", {})),
    )


def _arguments(record: Mapping[str, list[str]]) -> Mapping[str, Argument]:
    return MappingProxyType({name: Argument(*texts) for name, texts in record.items()})


def _frozen(found: dict[str, _V]) -> Mapping[str, _V]:
    return MappingProxyType(found)


@functools.cache
def installed_signature(implementation: str, python: str) -> Signature | None:
    """Return what the library in that interpreter takes, without importing it.

    Returns:
        None if it is not installed there or cannot be read.
    """
    source = _source(implementation)
    folders = locate(source.package, python) if source else ()
    readings = (read_package(implementation, folder) for folder in folders)
    return next((reading for reading in readings if reading), None)


@functools.cache
def installed_version(implementation: str, python: str) -> str:
    """Return the version of the library in that interpreter; empty if none, or it does not say."""
    source = _source(implementation)
    folders = locate(source.package, python) if source else ()
    return next((version_in(source, folder) for folder in folders), "") if source else ""


def read_package(implementation: str, folder: Path) -> Signature | None:
    """Return the signature that a package folder, such as `site-packages/vllm`, declares."""
    source = _source(implementation)
    package = Package(folder)
    module = package.module_in(source.file) if source else None
    if source is None or module is None:
        return None
    fields: dict[str, ClassField] = {}
    for name in source.classes:
        found = class_fields(name, module, package)
        fields |= {new: found[new] for new in found if new not in fields}
    # Every engine takes a model; without one we read only a part of a new layout.
    if "model" not in fields:
        return None
    try:
        version = version_in(source, folder)
        if not source.has_flags:
            arguments = _frozen({name: _argument(each) for name, each in fields.items()})
            return Signature(implementation, version, arguments, is_recorded=False)
        record = recorded_signature(implementation)
        listening = record.listener if record else ()
        read = _read_flags(CommandLine(package, module, source), fields, listening)
        ended, replaced = _models(implementation, package, source)
        return Signature(
            implementation,
            version,
            is_recorded=False,
            ended_models=ended,
            replaced_models=replaced,
            models=_served(package, source),
            plugins=plugins_in(source.package, folder),
            **read,
        )
    except UNREADABLE:
        return None


def _read_flags(
    line: CommandLine, fields: Mapping[str, ClassField], listening: Collection[str]
) -> dict[str, Any]:
    types = {name: line.type_of(name, each) for name, each in fields.items()}
    server, listener = line.server(listening)
    served = {name: line.type_of(name, each) for name, each in server.items()}
    switched = {name: kind for name, kind in types.items() if line.has_flag(name)} | served
    return {
        "arguments": _frozen(
            {
                name: _argument(each, types[name], "" if line.has_flag(name) else NO_FLAG)
                for name, each in fields.items()
            }
        ),
        "objects": _frozen(
            {
                name: _frozen(
                    {key: _argument(each, line.type_in(each)) for key, each in keys.items()}
                )
                for name, keys in line.objects(fields)
            }
        ),
        "words": _frozen(dict(line.words(types))),
        "server": _frozen({name: _argument(each, served[name]) for name, each in server.items()}),
        "listener": listener,
        "opposites": _frozen(dict(line.opposites(switched))),
        "spellings": _frozen({name: to for name, to in line.spellings.items() if to in fields}),
    }


def _argument(field: ClassField, kind: ast.expr | None = None, flag: str = "") -> Argument:
    return Argument(" ".join(ast.unparse(kind or field.type).split()), field.default, flag)


def _served(package: Package, source: ArgumentSource) -> frozenset[str]:
    """Return the names in the tables of models; none if no such table is found."""
    place, ended = source.ended_models
    module = package.module(place) if place else None
    tables = module.definitions if module else {}
    return frozenset(
        key.value
        for name, table in tables.items()
        if name != ended and isinstance(table, ast.Dict)
        for key in table.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )


def _models(
    implementation: str, package: Package, source: ArgumentSource
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the models that the library says it had, and those that other code may still serve.

    Which of the two a model is only the library Transformers could say; for models that our record
    does not know the load will tell.
    """
    place, table = source.ended_models
    module: Module | None = package.module(place) if place else None
    found = package.find(table, module) if module else None
    try:
        models = ast.literal_eval(found[0]) if found and isinstance(found[0], ast.Dict) else {}
    except ValueError:
        models = {}
    record = recorded_signature(implementation)
    known = record.ended_models if record else {}
    ended = {str(name): str(last) for name, last in models.items() if name in known}
    replaced = {str(name): str(last) for name, last in models.items() if name not in known}
    return _frozen(ended), _frozen(replaced)
