"""Read folders, archives, files of variables, and models of Triton's vLLM backend."""

from __future__ import annotations

import json
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lmi_backend.bounded_files import read_bounded
from lmi_backend.errors import ConfigurationError
from lmi_backend.migrate.endpoints import read_description
from lmi_backend.migrate.source import NAME, PresentServer
from lmi_backend.options import FILE_NAME
from lmi_backend.options.engine_spec import SPECS, default_engine
from lmi_backend.options.option import PREFIX
from lmi_backend.options.properties import as_property
from lmi_backend.options.table import common, lora
from lmi_backend.printable import printable
from lmi_backend.repository.files import CONFIG
from lmi_backend.units import MIB

_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")


def read_sources(paths: Iterable[Path], work: Path) -> PresentServer:
    """Return what all sources say together.

    Args:
        paths: folders, archives, files of variables, and JSON files.
        work: where archives are unpacked.

    Raises:
        ConfigurationError: a source cannot be read.
    """
    source = PresentServer()
    for path in paths:
        try:
            _read(path, work, source)
        except OSError as error:
            message = f"{path}: cannot be read: {error.strerror or error}"
            raise ConfigurationError(message) from error
    _settle_gpus(source)
    if source.archive and source.folder is None:
        source.decisions.append(f"download {source.archive}, and name it as another SOURCE")
    return source


def _settle_gpus(source: PresentServer) -> None:
    """Let a copy have the GPUs that it needs, of those of the instance."""
    if source.accelerators and source.gpus is not None:
        source.gpus = source.gpus._replace(number=source.accelerators)


def _read(path: Path, work: Path, source: PresentServer) -> None:
    if path.is_dir():
        for folder in _folders(path, work, source):
            _set_folder(source, folder)
    elif path.name.endswith(_ARCHIVES):
        _set_folder(source, _unpacked(path, work))
    elif path.suffix == ".json":
        read_description(path, source)
    else:
        source.environment |= _variables(path)


def _folders(path: Path, work: Path, source: PresentServer) -> list[Path]:
    """Return an LMI folder as it is, or those that models of Triton's vLLM backend become."""
    versions = models_in(path)
    return [read_version(each, work, source) for each in versions] or [path]


def _set_folder(source: PresentServer, folder: Path) -> None:
    if source.folder is not None:
        message = f"{folder}: is a second folder, next to {source.folder}; accepted: one"
        raise ConfigurationError(message)
    source.folder = folder


def _unpacked(path: Path, work: Path) -> Path:
    """Return the folder of an archive's files; nothing of it is written elsewhere."""
    suffix = next(each for each in _ARCHIVES if path.name.endswith(each))
    name = path.name.removesuffix(suffix)
    folder = work / "source" / (name or "model")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                _unpack(archive, member, folder, path)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be unpacked: {error}") from error
    inside = [each for each in folder.iterdir() if not each.name.startswith(".")]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, path: Path) -> None:
    """Write a file of an archive; refuse one that could be written, or lead, elsewhere."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or not (member.isdir() or member.isreg()):
        shown = printable(member.name, 100)
        problem = "is a link, a device, or outside of the archive's folder"
        raise ConfigurationError(f"{path}: {shown}: {problem}; unpack it, and name the folder")
    target = folder / name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
    elif (content := archive.extractfile(member)) is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file)


def _variables(path: Path) -> dict[str, str]:
    """Return the variables of a file with NAME=VALUE lines, as Docker's --env-file reads it."""
    found: dict[str, str] = {}
    text = read_bounded(path, MIB).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ")
        if not stripped or stripped.startswith("#"):
            continue
        name, is_pair, value = stripped.partition("=")
        if not is_pair or not NAME.fullmatch(name.strip()):
            # A value may be a secret, so the line is not quoted.
            raise ConfigurationError(f"{path}:{number}: is no variable; accepted: NAME=VALUE")
        found[name.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


_ARGUMENTS: Final = "model.json"
_ADAPTERS: Final = "multi_lora.json"


def models_in(folder: Path) -> list[Path]:
    """Return the versions of the backend's models in a folder: a model's, or a repository's."""
    if (folder / FILE_NAME).is_file():
        return []
    models = [folder] if (folder / CONFIG).is_file() else sorted(folder.glob("*/"))
    versions = ([each.parent for each in model.glob(f"[0-9]*/{_ARGUMENTS}")] for model in models)
    return [
        max(each, key=lambda version: (len(version.name), version.name))
        for each in versions
        if each
    ]


def read_version(version: Path, work: Path, source: PresentServer) -> Path:
    """Write a model of the backend as an LMI folder of its name; return that.

    Raises:
        ConfigurationError: a file is no JSON object.
    """
    name = version.parent.resolve().name
    arguments = _object(version / _ARGUMENTS)
    adapters = _object(version / _ADAPTERS) if (version / _ADAPTERS).is_file() else {}
    lines = [as_property(key, value) for key, value in _options(arguments, adapters)]
    folder = work / "source" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    shown = printable(name, 100)
    source.changes.append(
        f"{shown}: the arguments in {_ARGUMENTS} are options in {FILE_NAME}; Triton's vLLM backend "
        "is replaced by that of lmi-backend"
    )
    source.decisions.append(
        f"{shown}: {CONFIG} is written again: compare its instance groups and its parameters"
    )
    return folder


def _options(
    arguments: Mapping[str, Any], adapters: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    # vLLM is LMI's default.
    yield common.ROLLING_BATCH.name, SPECS[default_engine()].rolling_batch
    if adapters:
        listed = [{"name": name, "path": str(path)} for name, path in adapters.items()]
        yield lora.LORA_MODULES.name, json.dumps(listed)
    for name, value in arguments.items():
        if not name.isidentifier():
            problem = f"{printable(name, 100)} is no argument of vLLM's engine"
            raise ConfigurationError(f"{_ARGUMENTS}: {problem}")
        if value is not None:
            key = common.MODEL_ID.name if name == "model" else f"{PREFIX}{name}"
            yield key, value if isinstance(value, str) else json.dumps(value)


def _object(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(read_bounded(path, MIB))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ConfigurationError(f"{path}: is no JSON object; accepted: arguments of vLLM's engine")
    return read
