"""Read folders, archives, files of variables, and descriptions that AWS prints."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lmi_backend.bounded_files import read_bounded
from lmi_backend.errors import ConfigurationError
from lmi_backend.migration.instances import Gpus, gpus_of
from lmi_backend.printable import printable
from lmi_backend.units import MIB

_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_OF_MACHINES: Final = frozenset(
    {"PATH", "HOME", "HOSTNAME", "LD_LIBRARY_PATH", "PYTHONPATH", "PWD", "SHELL", "USER", "TMPDIR"}
)
_LMI_IMAGES: Final = ("djl-inference", "djl-serving", "deepjavalibrary")
_DECISIONS: Final = {
    "AsyncInferenceConfig": "the endpoint is asynchronous; requests are answered directly here",
    "ShadowProductionVariants": "shadow variants have none here; `replay` compares two servers",
    "ServerlessConfig": "the endpoint is serverless; choose GPUs with --gpus and --gpu-memory",
    "ManagedInstanceScaling": "instances scale; `deploy --with keda` scales pods",
    "RoutingConfig": "choose a router for several servers: docs/fleet.md",
    "VpcConfig": "the model is in a VPC; keep the network of the new server closed as well",
    "KmsKeyId": "data is encrypted with a key of KMS; choose encrypted volumes",
    "ModelPackageName": "the model is a package of a marketplace; its files must be on disk or S3",
    "MultiModelConfig": "the endpoint has many models; name the folder of each",
    "InferenceExecutionConfig": "several containers answer; name the one with the model",
    "CoreDumpConfig": "core dumps are not collected",
}
"""Members of what AWS prints that need somebody to decide."""


@dataclass
class Source:
    """What runs a model today."""

    folder: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    gpus: Gpus | None = None
    replicas: int = 0
    """0: not known."""
    archive: str = ""
    """The archive of the model on S3."""
    capture: str = ""
    """Where SageMaker writes requests and answers."""
    changes: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)


def read_sources(paths: Iterable[Path], work: Path) -> Source:
    """Return what all sources say together.

    Args:
        paths: folders, archives, files of variables, and JSON files.
        work: where archives are unpacked.

    Raises:
        ConfigurationError: a source cannot be read.
    """
    source = Source()
    for path in paths:
        try:
            _read(path, work, source)
        except OSError as error:
            message = f"{path}: cannot be read: {error.strerror or error}"
            raise ConfigurationError(message) from error
    if source.archive and source.folder is None:
        source.decisions.append(f"download {source.archive}, and name it as another SOURCE")
    return source


def _read(path: Path, work: Path, source: Source) -> None:
    if path.is_dir():
        _set_folder(source, path)
    elif path.name.endswith(_ARCHIVES):
        _set_folder(source, _unpacked(path, work))
    elif path.suffix == ".json":
        _read_description(path, source)
    else:
        source.variables |= _variables(path)


def _set_folder(source: Source, folder: Path) -> None:
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
        if not is_pair or not _NAME.fullmatch(name.strip()):
            # A value may be a secret, so the line is not quoted.
            raise ConfigurationError(f"{path}:{number}: is no variable; accepted: NAME=VALUE")
        found[name.strip()] = _unquoted(value.strip())
    return _without_machine(found)


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def _without_machine(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in _OF_MACHINES}


def _read_description(path: Path, source: Source) -> None:
    """Read what `aws sagemaker describe-model` or `describe-endpoint-config` printed."""
    try:
        read = json.loads(read_bounded(path, MIB))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not JSON: {error}") from error
    known = (
        read.keys() & {"PrimaryContainer", "Containers", "ProductionVariants"}
        if isinstance(read, dict)
        else ()
    )
    if not known:
        accepted = "what `aws sagemaker describe-model` or `describe-endpoint-config` prints"
        raise ConfigurationError(f"{path}: accepted: {accepted}")
    _decide(read, source)
    containers = [read.get("PrimaryContainer"), *_list(read, "Containers")]
    held = [each for each in containers if isinstance(each, dict)]
    if held:
        _read_container(path, held[0], source)
    if len(held) > 1:
        source.decisions.append(f"there are {len(held)} containers; the first one was read")
    variants = [each for each in _list(read, "ProductionVariants") if isinstance(each, dict)]
    if variants:
        _read_variant(variants[0], source)
    if len(variants) > 1:
        source.decisions.append(f"there are {len(variants)} variants; the first one was read")
    _read_capture(read.get("DataCaptureConfig"), source)


def _list(read: Mapping[str, Any], name: str) -> list[Any]:
    value = read.get(name)
    return value if isinstance(value, list) else []


def _decide(read: Mapping[str, Any], source: Source) -> None:
    source.decisions += [text for name, text in _DECISIONS.items() if read.get(name)]


def _read_container(path: Path, container: Mapping[str, Any], source: Source) -> None:
    _decide(container, source)
    image = printable(str(container.get("Image", "")), 200)
    if image:
        source.changes.append(f"the image `{image}` is replaced by that of lmi-backend")
        if not any(name in image for name in _LMI_IMAGES):
            source.decisions.append("the image is no LMI container: compare its variables")
    environment = container.get("Environment") or {}
    if not isinstance(environment, dict) or not all(map(_is_variable, environment.items())):
        raise ConfigurationError(f"{path}: Environment: accepted: an object of names and texts")
    source.variables |= _without_machine(environment)
    _read_data(container, source)


def _is_variable(pair: tuple[Any, Any]) -> bool:
    name, value = pair
    return isinstance(value, str) and _NAME.fullmatch(name) is not None and "\0" not in value


def _read_data(container: Mapping[str, Any], source: Source) -> None:
    """Read where the model's files are: an archive, or a prefix that is mounted."""
    archive = container.get("ModelDataUrl")
    inner = container.get("ModelDataSource")
    data = inner.get("S3DataSource") if isinstance(inner, dict) else None
    if isinstance(data, dict) and isinstance(place := data.get("S3Uri"), str):
        if data.get("CompressionType") == "Gzip":
            archive = place
        elif not source.variables.keys() & {"HF_MODEL_ID", "OPTION_MODEL_ID"}:
            source.variables["HF_MODEL_ID"] = place
            source.changes.append(
                f"the files at {printable(place, 200)} are downloaded at the start"
            )
    if isinstance(archive, str) and archive:
        source.archive = printable(archive, 200)


def _read_variant(variant: Mapping[str, Any], source: Source) -> None:
    _decide(variant, source)
    instance = printable(str(variant.get("InstanceType") or ""), 60)
    source.gpus = gpus_of(instance)
    if gpus := source.gpus:
        source.changes.append(f"{instance}: planned for {gpus.number} GPU(s) of {gpus.gib} GiB")
    elif instance:
        source.decisions.append(f"{instance}: its GPUs are not known; name them with --gpus")
    count = variant.get("InitialInstanceCount")
    if isinstance(count, int) and not isinstance(count, bool) and count > 0:
        source.replicas = count
        source.changes.append(f"{count} instance(s): `deploy` writes as many replicas")


def _read_capture(config: Any, source: Source) -> None:
    if isinstance(config, dict) and config.get("EnableCapture"):
        place = config.get("DestinationS3Uri")
        source.capture = place if isinstance(place, str) else ""
