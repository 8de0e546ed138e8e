"""Write the files of a model's folder, and keep what somebody edited.

Triton shows the parameters of config.pbtxt to every client. So the record of a conversion is a file
of its own, as readable as serving.properties.

What the environment said of a model is written as properties: a fleet's server then needs no
variables.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import read_bounded
from lmi_backend.options import FILE_NAME
from lmi_backend.options.model_store import LOAD_MODELS
from lmi_backend.options.properties import Property, as_property, parse_properties
from lmi_backend.options.sources import ORIGIN
from lmi_backend.options.spec import FEATURES, PREFIX, WrittenSetting
from lmi_backend.options.table import common as opt
from lmi_backend.redaction import secrets_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmi_backend.options import LmiOptions


RECORD: Final = "1/record.json"
"""Where it is in a model's folder."""


@dataclass(frozen=True)
class Record:
    """What a conversion leaves for the load, and for the next conversion."""

    model_dir: str = ""
    """Folder of the user's serving.properties, where paths in it start; empty for the model's."""
    properties: str = ""
    """Digest of the serving.properties that was written with it."""

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        """Return the record in a model's folder, if there is one.

        Raises:
            ConfigurationError: it cannot be read.
        """
        path = folder / RECORD
        try:
            written = json.loads(read_bounded(path))
            return cls(written["model_dir"], written["properties"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(
                f"{path}: cannot be read: {error.strerror}; accepted: a file of the server's user: "
                "convert as that user, or give it to him with chown"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            message = f"{path}: is not a record of lmi-backend: {error}; run convert again"
            raise ConfigurationError(message) from error

    def as_text(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


CONFIG: Final = "config.pbtxt"
_STAMP: Final = re.compile(r"# digest: config (\w+)\n")


def stamped(what: str, version: str, body: str) -> str:
    """Return config.pbtxt with a first line for people and the digest that tells edits by hand."""
    return f"# Written by lmi-backend {version}{what}.\n# digest: config {digest(body)}\n{body}"


def write_files(
    folder: Path,
    files: Mapping[str, str],
    record: Record | None,
    *,
    force: bool,
    like: Path | None = None,
) -> list[str]:
    """Write files by their path in a folder; return the paths of those that were others before.

    Args:
        record: that of the conversion before.
        like: the user's serving.properties; who may not read it may read neither the copy nor
            the record, and where there is none, nobody else may.

    Raises:
        ConfigurationError: the folder cannot be written, or holds edits by hand.
    """
    try:
        old = {path: read(folder / path) for path in files if (folder / path).is_file()}
        if not force:
            _refuse_edits(folder, files, old, record)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if old.get(path) != text:
                replace(folder / path, text, is_private=path == RECORD)
        # Also where they are the same, but came with a copy that opened them to others.
        for path in files.keys() & {FILE_NAME, RECORD}:
            _copy_mode(like, folder / path)
    except OSError as error:
        raise ConfigurationError(f"{folder}: cannot be written: {error.strerror}") from error
    return [path for path in old if path != RECORD and old[path] != files[path]]


def read(path: Path) -> str:
    """Return the text of a user's file; it may be UTF-8 or Latin-1, its bytes are kept.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return read_bounded(path).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error


def replace(path: Path, text: str, *, is_private: bool = False) -> None:
    """Write in one step: a server that polls the repository never sees half a file."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    # A file of our own from the start: nobody opens it before it is closed to others.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    closed = is_private or path.name == FILE_NAME
    with open(os.open(draft, flags, 0o600 if closed else 0o666), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    os.replace(draft, path)


def _copy_mode(source: Path | None, copy: Path) -> None:
    """Let those read a copy who may read its source: it may hold secrets."""
    if source is None or not source.is_file():
        copy.chmod(0o600)
        return
    status = source.stat()
    # Either is refused where the copy is another user's.
    with contextlib.suppress(PermissionError):
        os.chown(copy, -1, status.st_gid)
    with contextlib.suppress(PermissionError):
        copy.chmod(status.st_mode & 0o644)


def _refuse_edits(
    folder: Path, files: Mapping[str, str], old: Mapping[str, str], record: Record | None
) -> None:
    """Refuse to write over what somebody has changed since it was written, or wrote himself."""
    stamp = _STAMP.search(old.get(CONFIG, ""))
    for path, text in old.items():
        if path == CONFIG:
            is_ours = stamp is not None and stamp[1] == digest(text[stamp.end() :])
        elif path == FILE_NAME:
            is_ours = record is not None and record.properties == digest(text)
        elif path.endswith(".json"):
            # The record, and adapters, which come and go and which nothing here reads.
            is_ours = True
        else:
            is_ours = "lmi_backend.triton.model import TritonPythonModel" in text
        if not is_ours and text != files[path]:
            raise ConfigurationError(
                f"{folder / path}: was edited by hand, or is not from lmi-backend; "
                "--force writes over it"
            )


_MARKS: Final = (
    "# From the environment in which lmi-backend wrote this folder",
    "# From the command line with which lmi-backend wrote this folder",
)


def environment_properties(options: LmiOptions) -> str:
    """Return the settings that came from variables as lines of properties; empty if none did."""
    return _marked(_MARKS[0], _written_settings(options))


def command_line_properties(given: Iterable[Property]) -> str:
    """Return flags as lines of properties; empty if there are none."""
    return _marked(_MARKS[1], ((each.key, each.value) for each in given))


def _marked(mark: str, settings: Iterable[tuple[str, str]]) -> str:
    lines = [as_property(name, value) for name, value in settings]
    return "".join(f"{line}\n" for line in (mark, *lines)) if lines else ""


def left_to_the_server(options: LmiOptions) -> list[str]:
    """Return the variables that say something of the machine, and so are not written."""
    written = {setting.name for _, setting in _from_variables(options)}
    return [
        each.setting.name
        for each in options.classifications
        if each.setting.origin == ORIGIN
        and each.status.word == "mapped"
        and each.setting.name not in {*written, FEATURES, LOAD_MODELS}
    ]


def holds_secrets(properties: str) -> bool:
    """Tell whether lines of properties hold what not everybody may read."""
    return any(
        secret
        for each in parse_properties(properties)
        for secret in secrets_of(each.key, each.value)
    )


def has_own_properties(folder: Path) -> bool:
    """Tell whether somebody wrote a folder's serving.properties, or edited what we had written."""
    text = _text(folder)
    try:
        record = Record.read(folder)
    except ConfigurationError:
        return bool(text)
    is_ours = record is not None and record.properties == digest(text)
    return bool(text) and not (is_ours and text.startswith(_MARKS))


def properties_of(folder: Path, options: LmiOptions) -> str:
    """Return the text of a folder's serving.properties, if the options were read from it."""
    text = _text(folder)
    origins = (each.setting.origin for each in options.classifications)
    is_read = any(origin.startswith(FILE_NAME) for origin in origins)
    return text if is_read or not text.startswith(_MARKS) else ""


def remove_written(folder: Path) -> None:
    """Remove what an earlier conversion knew of the environment: it is true no more."""
    if _text(folder).startswith(_MARKS):
        (folder / FILE_NAME).unlink()


def _text(folder: Path) -> str:
    file = folder / FILE_NAME
    return read(file) if os.path.isfile(file) else ""


def _written_settings(options: LmiOptions) -> Iterator[tuple[str, str]]:
    for name, setting in _from_variables(options):
        yield name, setting.value
    is_of_the_image = any(FEATURES in reason for reason in options.choice.reasons)
    if is_of_the_image and options.choice.spec.entry_points:
        # Its handler names the engine and, unlike rolling_batch, says nothing of mode and dialect.
        yield opt.ENTRY_POINT.name, options.choice.spec.entry_points[0]


def _from_variables(options: LmiOptions) -> Iterator[tuple[str, WrittenSetting]]:
    passed = {PREFIX + name: setting for name, setting in options.passthrough.items()}
    for name, setting in {**options.settings, **passed}.items():
        # The interpreter is the machine's.
        if setting.origin == ORIGIN and name != opt.PYTHON_EXECUTABLE.name:
            yield name, setting
