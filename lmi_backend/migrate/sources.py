"""What runs a model today: folders, archives, files of variables, and what AWS prints."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import read_bounded
from lmi_backend.migrate.fates import Gpus, fates_of, gpus_of, what_it_has
from lmi_backend.options import FILE_NAME
from lmi_backend.options.properties import as_property
from lmi_backend.options.spec import PREFIX, SPECS, default_engine
from lmi_backend.options.table import common, vllm
from lmi_backend.printable import MIB, printable
from lmi_backend.repository.files import CONFIG

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_OF_MACHINES: Final = frozenset(
    {"PATH", "HOME", "HOSTNAME", "LD_LIBRARY_PATH", "PYTHONPATH", "PWD", "SHELL", "USER", "TMPDIR"}
)


def why_left(name: str, value: str) -> str:
    if name in _OF_MACHINES:
        return "it describes the old machine"
    if not value:
        return "it is empty"
    return "no option; if the engine or your own code reads it, set it where the server runs"


@dataclass
class PresentServer:
    name: str = ""
    folder: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    gpus: Gpus | None = None
    accelerators: int = 0
    """GPUs of one copy of the model; 0: all of the instance."""
    copies: int = 0
    """Of an inference component; 0: there is none."""
    replicas: int = 0
    """0: not known."""
    archive: str = ""
    capture: str = ""
    """Where SageMaker writes requests and answers."""
    changes: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        return {name: value for name, value in self.environment.items() if name not in _OF_MACHINES}


_LMI_IMAGES: Final = ("djl-inference", "djl-serving", "deepjavalibrary")
_VLLM_IMAGE: Final = "vllm:"
_RELEASE: Final = re.compile(r"v?(\d{1,4}\.\d{1,4}\.\d{1,4})")
_LMI_RELEASE: Final = re.compile(r"-lmi(\d{1,4})\b")
_PEERS: Final = Path(__file__).with_name("peers.json")
"""What was read of other programs, with its source and its day."""
_MOST_NAMED: Final = 5
"""Containers and files that are listed."""


def read_description(path: Path, source: PresentServer) -> None:
    """Read what `aws sagemaker describe-…` printed."""
    read = _json_of(path)
    members = read.keys() if isinstance(read, dict) else set()
    if "Specification" in members or "Specifications" in members:
        _read_component(path, read, source)
    elif "ProductionVariants" in members:
        _read_endpoint(read, source)
    elif members & {"PrimaryContainer", "Containers"}:
        _read_model(path, read, source)
    else:
        names = "`describe-endpoint-config` or `describe-inference-component`"
        accepted = f"what `aws sagemaker describe-model`, {names} prints"
        raise ConfigurationError(f"{path}: accepted: {accepted}")


def _json_of(path: Path) -> Any:
    try:
        return json.loads(read_bounded(path, MIB))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not JSON: {error}") from error


def _note(read: Mapping[str, Any], source: PresentServer) -> None:
    for text, needs_decision in fates_of(read):
        texts = source.decisions if needs_decision else source.changes
        if text not in texts:
            texts.append(text)


def _object(read: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = read.get(name)
    return value if isinstance(value, dict) else {}


def _objects(read: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = read.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(read: Mapping[str, Any], name: str) -> str:
    return printable(str(read.get(name) or ""), 200)


def _count(read: Mapping[str, Any], *names: str) -> int:
    """Return the first of some numbers that is above 0; 0 if none is."""
    values = (read.get(name) for name in names)
    counts = (each for each in values if isinstance(each, (int, float)) and each is not True)
    return next((int(each) for each in counts if 1 <= each < 1e6), 0)


def _read_model(path: Path, read: Mapping[str, Any], source: PresentServer) -> None:
    _note(read, source)
    source.name = _text(read, "ModelName") or source.name
    held = [each for each in (_object(read, "PrimaryContainer"),) if each]
    held += _objects(read, "Containers")
    if held:
        _read_container(path, held[0], source)
    if len(held) > 1:
        source.decisions.append(f"there are {len(held)} containers; the first one was read")
        source.decisions += [
            f"not carried over: container {number}, `{_text(each, 'Image')}`{_names(each)}"
            for number, each in enumerate(held[1 : _MOST_NAMED + 1], 2)
        ]


def _names(container: Mapping[str, Any]) -> str:
    names = ", ".join(printable(name, 200) for name in _object(container, "Environment"))
    return f" and its variables: {names}" if names else ""


def _read_container(path: Path, container: Mapping[str, Any], source: PresentServer) -> None:
    _note(container, source)
    if container.get("Mode") == "MultiModel":
        source.decisions.append("the container has many models; name the folder of each")
    _read_image(_text(container, "Image"), source)
    _read_environment(path, container, source)
    _read_data(container, source)


def _read_image(image: str, source: PresentServer) -> None:
    if not image:
        return
    source.changes.append(f"the image `{image}` is replaced by that of lmi-backend")
    if release := _vllm_in(image):
        source.decisions.append(
            f"the image has vLLM {release}: compare the release that `check` names; "
            f"--engine-version {release} plans for the old one"
        )
    elif not any(name in image for name in _LMI_IMAGES):
        source.decisions.append("the image is no LMI container: compare its variables")


def _vllm_in(image: str) -> str:
    if match := _LMI_RELEASE.search(image):
        releases: dict[str, str] = json.loads(_PEERS.read_text(encoding="utf-8"))["lmi"]
        return releases.get(match[1], "")
    _, _, tag = image.rpartition(_VLLM_IMAGE)
    release = _RELEASE.match(tag) if tag != image else None
    return release[1] if release else ""


def _read_environment(path: Path, container: Mapping[str, Any], source: PresentServer) -> None:
    environment = container.get("Environment") or {}
    accepted = "accepted: names of letters, digits and _, each with a text"
    if not isinstance(environment, dict):
        raise ConfigurationError(f"{path}: Environment: {accepted}")
    for name, value in environment.items():
        if not isinstance(value, str) or not NAME.fullmatch(name) or "\0" in value:
            raise ConfigurationError(f"{path}: Environment: {printable(name)}: {accepted}")
    source.environment |= environment


def _read_data(container: Mapping[str, Any], source: PresentServer) -> None:
    """Read where the model's files are: an archive, or a prefix that is mounted."""
    archive = container.get("ModelDataUrl")
    data = _object(_object(container, "ModelDataSource"), "S3DataSource")
    _note(data, source)
    if isinstance(place := data.get("S3Uri"), str):
        if data.get("CompressionType") == "Gzip":
            archive = place
        elif not source.variables.keys() & _OF_MODEL:
            source.environment["HF_MODEL_ID"] = place
            source.changes.append(
                f"the files at {printable(place, 200)} are downloaded at the start"
            )
    if isinstance(archive, str) and archive:
        source.archive = printable(archive, 200)
    for each in _objects(container, "AdditionalModelDataSources")[:_MOST_NAMED]:
        more = _object(each, "S3DataSource")
        _note(more, source)
        source.decisions.append(
            f"channel {_text(each, 'ChannelName')}: download {_text(more, 'S3Uri')}"
        )


def _read_endpoint(read: Mapping[str, Any], source: PresentServer) -> None:
    """Read an endpoint or its configuration: both have variants."""
    is_running = "EndpointStatus" in read or "EndpointName" in read
    _note(read, source)
    if "EndpointConfigName" in read and is_running:
        advice = "what `describe-endpoint-config` prints has its instance types too"
        source.decisions.append(f"`EndpointConfigName`: is an endpoint; {advice}")
    variants = _objects(read, "ProductionVariants")
    if variants:
        _note(variants[0], source)
        _read_variant(variants[0], source)
    if len(variants) > 1:
        source.decisions.append(f"there are {len(variants)} variants; the first one was read")
    _read_capture(_object(read, "DataCaptureConfig"), source)


def _read_variant(variant: Mapping[str, Any], source: PresentServer) -> None:
    pools = _objects(variant, "InstancePools")
    _read_instance(
        _text(variant, "InstanceType") or _text(pools[0] if pools else {}, "InstanceType"), source
    )
    count = _count(variant, "InitialInstanceCount", "DesiredInstanceCount", "CurrentInstanceCount")
    if count and not source.copies:
        source.replicas = count
    source.name = source.name or _text(variant, "ModelName")
    _read_startup(variant, source)


def _read_startup(read: Mapping[str, Any], source: PresentServer) -> None:
    option = common.MODEL_LOADING_TIMEOUT
    if seconds := _count(read, "ContainerStartupHealthCheckTimeoutInSeconds"):
        source.environment.setdefault(option.variable, str(seconds))
        source.changes.append(f"a start may take {seconds} s: {option.name}")


def _read_instance(instance: str, source: PresentServer) -> None:
    if not instance:
        return
    source.gpus = gpus_of(instance)
    if gpus := source.gpus:
        source.changes.append(f"{instance}: planned for {gpus.number} GPU(s), {gpus.kind}")
    else:
        source.decisions.append(what_it_has(instance))


def _read_capture(config: Mapping[str, Any], source: PresentServer) -> None:
    _note(config, source)
    if not config.get("EnableCapture"):
        return
    place = config.get("DestinationS3Uri")
    source.capture = place if isinstance(place, str) else ""
    modes = {_text(each, "CaptureMode") for each in _objects(config, "CaptureOptions")}
    if modes and not modes & {"Input", "InputAndOutput"}:
        source.decisions.append("only answers are captured: `replay` needs requests")
    elif modes and not modes & {"Output", "InputAndOutput"}:
        source.decisions.append("only requests are captured: `replay` needs --against")


def _read_component(path: Path, read: Mapping[str, Any], source: PresentServer) -> None:
    _note(read, source)
    source.name = source.name or _text(read, "InferenceComponentName")
    specifications = [_object(read, "Specification"), *_objects(read, "Specifications")]
    held = [each for each in specifications if each]
    if held:
        _read_specification(path, held[0], source)
    if len(held) > 1:
        source.decisions.append(f"there are {len(held)} specifications; the first one was read")
        source.decisions += [
            f"not carried over: specification {number}{_names(_object(each, 'Container'))}"
            for number, each in enumerate(held[1 : _MOST_NAMED + 1], 2)
        ]
    copies = _object(read, "RuntimeConfig")
    _note(copies, source)
    if count := _count(copies, "DesiredCopyCount", "CurrentCopyCount"):
        source.replicas = source.copies = count


def _read_specification(path: Path, read: Mapping[str, Any], source: PresentServer) -> None:
    _note(read, source)
    if "ModelName" in read:
        advice = "add what `describe-model` prints of it"
        source.decisions.append(f"`ModelName`: its container is a model's; {advice}")
    startup = _object(read, "StartupParameters")
    _note(startup, source)
    _read_startup(startup, source)
    _read_instance(_text(read, "InstanceType"), source)
    container = _object(read, "Container")
    _note(container, source)
    image = _object(container, "DeployedImage")
    _read_image(_text(image, "SpecifiedImage") or _text(image, "ResolvedImage"), source)
    _read_environment(path, container, source)
    if archive := _text(container, "ArtifactUrl"):
        source.archive = archive
    resources = _object(read, "ComputeResourceRequirements")
    _note(resources, source)
    if count := _count(resources, "NumberOfAcceleratorDevicesRequired"):
        source.accelerators = count
        source.changes.append(f"a copy has {count} GPU(s)")


_ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")
_WORK: Final = "source"
_OF_MODEL: Final = frozenset({common.MODEL_ID.variable, *common.MODEL_ID.env})
_FOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
"""A name that AWS gives, which a folder may have."""


def read_sources(paths: Iterable[Path], work: Path) -> PresentServer:
    """Return what all sources say together; archives are unpacked in `work`."""
    source = PresentServer()
    for path in paths:
        try:
            _read(path, work, source)
        except OSError as error:
            message = f"{path}: cannot be read: {error.strerror or error}"
            raise ConfigurationError(message) from error
    if source.accelerators and source.gpus is not None:
        source.gpus = source.gpus._replace(number=source.accelerators)
    _settle_name(source, work / _WORK)
    if source.archive and source.folder is None:
        source.decisions.append(f"download {source.archive}, and name it as another SOURCE")
    return source


def _settle_name(source: PresentServer, work: Path) -> None:
    """Let the model have the name that AWS has of it, unless its folder is the user's own."""
    folder, named = source.folder, work / source.name
    if not _FOLDER.fullmatch(source.name) or folder == named:
        return
    if folder is None and source.variables.keys() & _OF_MODEL:
        # Its variables say everything: an empty file makes a model of the folder.
        shutil.rmtree(named, ignore_errors=True)
        named.mkdir(parents=True)
        (named / FILE_NAME).touch()
        source.folder = named
    elif folder is not None and folder.is_relative_to(work):
        shutil.rmtree(named, ignore_errors=True)
        source.folder = folder.rename(named)


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
    folder = work / _WORK / (name or "model")
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
        text = printable(member.name, 100)
        problem = "is a link, a device, or outside of the archive's folder"
        raise ConfigurationError(f"{path}: {text}: {problem}; unpack it, and name the folder")
    target = folder / name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
    elif (content := archive.extractfile(member)) is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file)


def _variables(path: Path) -> dict[str, str]:
    """Return the variables of a file with NAME=VALUE lines, as Docker's --env-file reads it."""
    settings: dict[str, str] = {}
    text = read_bounded(path, MIB).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ")
        if not stripped or stripped.startswith("#"):
            continue
        name, is_pair, value = stripped.partition("=")
        if not is_pair or not NAME.fullmatch(name.strip()):
            # A value may be a secret, so the line is not quoted.
            raise ConfigurationError(f"{path}:{number}: is not a variable; accepted: NAME=VALUE")
        settings[name.strip()] = _unquoted(value.strip())
    return settings


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
    """Write a model of the backend as an LMI folder of its name; return that."""
    name = version.parent.resolve().name
    arguments = _read_object(version / _ARGUMENTS)
    adapters = _read_object(version / _ADAPTERS) if (version / _ADAPTERS).is_file() else {}
    lines = [as_property(key, value) for key, value in _options(arguments, adapters)]
    folder = work / _WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = printable(name, 100)
    source.changes.append(
        f"{text}: the arguments in {_ARGUMENTS} are options in {FILE_NAME}; Triton's vLLM backend "
        "is replaced by that of lmi-backend"
    )
    source.decisions.append(
        f"{text}: {CONFIG} is written again: compare its instance groups and its parameters"
    )
    return folder


def _options(
    arguments: Mapping[str, Any], adapters: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    # vLLM is LMI's default.
    yield common.ROLLING_BATCH.name, SPECS[default_engine()].rolling_batch
    if adapters:
        listed = [{"name": name, "path": str(path)} for name, path in adapters.items()]
        yield vllm.LORA_MODULES.name, json.dumps(listed)
    for name, value in arguments.items():
        if not name.isidentifier():
            problem = f"{printable(name, 100)} is not an argument of vLLM's engine"
            raise ConfigurationError(f"{_ARGUMENTS}: {problem}")
        if value is not None:
            key = common.MODEL_ID.name if name == "model" else f"{PREFIX}{name}"
            yield key, value if isinstance(value, str) else json.dumps(value)


def _read_object(path: Path) -> dict[str, Any]:
    read = _json_of(path)
    if not isinstance(read, dict):
        raise ConfigurationError(
            f"{path}: is not a JSON object; accepted: arguments of vLLM's engine"
        )
    return read
