"""Which arguments a release of an engine takes: importing vLLM to see takes 15 seconds.

A record says it. This package has those of known releases; an unknown release is queried.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.installation import locate, plugins_in, version_in
from lmi_backend.options.queried import answer_of
from lmi_backend.options.releases import numbers
from lmi_backend.options.versions import is_later

if TYPE_CHECKING:
    from lmi_backend.options.engine_spec import ArgumentSource

RECORDS: Final = Path(__file__).with_name("signatures")
REQUIRED: Final = "required"
"""Default of an argument that has none."""
TEXT_LIMIT: Final = 120
"""Characters of a default, or of a type that is shown; longer ones are cut."""
NO_FLAG: Final = "no flag"
SCALED: Final = "scaled"
ANY_CASE: Final = "any case"


@dataclass(frozen=True)
class Argument:
    """One argument of an engine, as short texts for people."""

    type: str
    """Values in quotes, and the members of a union with bars between: `'auto' | int | None`."""
    default: str
    flag: str = ""
    """NO_FLAG if the engine's command line has none for it, so that no text can set it. SCALED if
    that reads 32k. ANY_CASE if it takes DEEP-GEMM for deep_gemm."""


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
    found, known = installed_signature(implementation, python), recorded_signature(implementation)
    source = source_of(implementation)
    if found or known is None or source is None or not locate(source.package, python):
        return found or known
    # Which values a release takes that was not queried, its load alone can tell.
    arguments = {name: replace(each, type="Any") for name, each in known.arguments.items()}
    return replace(known, arguments=arguments, objects={}, words={})


def recorded_signature(implementation: str) -> Signature | None:
    """Return what we noted about the version that we were tested with."""
    return _recorded(implementation, next(iter(records(implementation)), ""))


def other_signature(implementation: str, version: str) -> Signature | None:
    """Return what another release took than that of our record; None of one that is not recorded.

    A release counts as the last one of its minor number.
    """
    own, *others = (numbers(each)[:2] for each in records(implementation) or [""])
    minor = numbers(version)[:2]
    if not minor or minor == own or minor not in others:
        return None
    return _recorded(implementation, [*records(implementation)][others.index(minor) + 1])


def exact_signature(implementation: str, version: str) -> Signature | None:
    """Return what exactly this release takes; None of one that is not recorded."""
    # Builds of a release have a word of their own behind it: 0.32.0+cpu, 0.12.0.post2.
    return _recorded(implementation, version.partition("+")[0].partition(".post")[0])


@functools.cache
def _recorded(implementation: str, version: str) -> Signature | None:
    record = records(implementation).get(version)
    return _signature(implementation, record) if record else None


@functools.cache
def records(implementation: str) -> Mapping[str, dict[str, Any]]:
    """Return the record of each known release: our own first, then newer ones, then older ones."""
    file = RECORDS / f"{implementation}.json"
    if not file.is_file():
        return {}
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    releases = {record["version"]: record}
    others = RECORDS / f"{implementation}_others.json"
    changes = json.loads(others.read_text(encoding="utf-8")) if others.is_file() else {}
    # Each is recorded by what differs from its neighbour on the side of our record.
    newer = [version for version in changes if is_later(version, record["version"])]
    for side in (newer, [version for version in changes if version not in newer]):
        known = record
        for version in side:
            releases[version] = known = _changed(known, changes[version]) | {"version": version}
    return releases


def _changed(known: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its changes: null where the other release has no such name."""
    made = dict(known)
    for table, changed in changes.items():
        if isinstance(changed, dict):
            kept = {name: each for name, each in made[table].items() if name not in changed}
            made[table] = kept | {name: each for name, each in changed.items() if each is not None}
        else:
            gained, lost = changed
            made[table] = sorted({*made[table], *gained} - {*lost})
    return made


def _signature(implementation: str, record: Mapping[str, Any]) -> Signature:
    return Signature(
        implementation,
        record["version"],
        _arguments(record["arguments"]),
        is_recorded=True,
        ended_models=MappingProxyType(record.get("ended_models", {})),
        replaced_models=MappingProxyType(record.get("replaced_models", {})),
        models=frozenset(record.get("models", ())),
        objects=MappingProxyType(
            {
                name: _arguments({key: [kind, ""] for key, kind in keys.items()})
                for name, keys in record.get("objects", {}).items()
            }
        ),
        words=MappingProxyType({name: tuple(e) for name, e in record.get("words", {}).items()}),
        server=_arguments(record.get("server", {})),
        listener=tuple(record.get("listener", ())),
        opposites=MappingProxyType(record.get("opposites", {})),
        spellings=MappingProxyType(record.get("spellings", {})),
    )


def _arguments(record: Mapping[str, list[str]]) -> Mapping[str, Argument]:
    return MappingProxyType({name: Argument(*texts) for name, texts in record.items()})


@functools.cache
def installed_signature(implementation: str, python: str) -> Signature | None:
    """Return what the library in that interpreter takes, without importing it.

    Returns:
        None if it is not installed there, or a release that is not known and was not queried.
    """
    source = source_of(implementation)
    for folder in locate(source.package, python) if source else ():
        version = version_in(source, folder) if source else ""
        found = exact_signature(implementation, version)
        if found is None and source and (record := answer_of(source, folder)):
            found = _signature(implementation, record)
        if found and source:
            plugins = plugins_in(source.package, folder) if source.has_flags else ()
            return replace(found, version=version, is_recorded=False, plugins=plugins)
    return None


@functools.cache
def installed_version(implementation: str, python: str) -> str:
    """Return the version of the library in that interpreter; empty if none, or it does not say."""
    source = source_of(implementation)
    folders = locate(source.package, python) if source else ()
    return next((version_in(source, folder) for folder in folders), "") if source else ""


def source_of(implementation: str) -> ArgumentSource | None:
    """Return where a library is, and who says its arguments."""
    known = implementations().get(implementation)
    return known.source if known else None


def shorten(text: str) -> str:
    """Return a type or default as one line of at most TEXT_LIMIT characters."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"
