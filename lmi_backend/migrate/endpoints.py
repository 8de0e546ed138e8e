"""Read what the commands of AWS print about an endpoint, its models and its components."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lmi_backend.bounded_files import read_bounded
from lmi_backend.errors import ConfigurationError
from lmi_backend.migrate.fates import fates_of, gpus_of, what_it_has
from lmi_backend.migrate.source import NAME, PresentServer
from lmi_backend.printable import printable
from lmi_backend.units import MIB

_LMI_IMAGES: Final = ("djl-inference", "djl-serving", "deepjavalibrary")
_VLLM_IMAGE: Final = "vllm:"
_RELEASE: Final = re.compile(r"v?(\d{1,4}\.\d{1,4}\.\d{1,4})")
_LMI_RELEASE: Final = re.compile(r"-lmi(\d{1,4})\b")
_PEERS: Final = Path(__file__).with_name("peers.json")
"""What was read of other programs, with its source and its day."""
_SHOWN: Final = 5
"""Names of variants, files and scalings that are listed."""


def read_description(path: Path, source: PresentServer) -> None:
    """Read what `aws sagemaker describe-…` or `aws application-autoscaling describe-…` printed.

    Raises:
        ConfigurationError: the file is none of these.
    """
    try:
        read = json.loads(read_bounded(path, MIB))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not JSON: {error}") from error
    members = read.keys() if isinstance(read, dict) else set()
    if members & {"ScalableTargets", "ScalingPolicies"}:
        _read_scaling(read, source)
    elif "Specification" in members or "Specifications" in members:
        _read_component(path, read, source)
    elif "ProductionVariants" in members:
        _read_endpoint(read, source)
    elif members & {"PrimaryContainer", "Containers"}:
        _read_model(path, read, source)
    else:
        names = "`describe-endpoint-config` or `describe-inference-component`"
        accepted = f"what `aws sagemaker describe-model`, {names} prints"
        raise ConfigurationError(f"{path}: accepted: {accepted}")


def _note(structure: str, read: Mapping[str, Any], source: PresentServer) -> None:
    """Keep what becomes of the members of a structure."""
    for fate in fates_of(structure, read):
        texts = source.decisions if fate.needs_decision else source.changes
        if fate.text not in texts:
            texts.append(fate.text)


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
    _note("model", read, source)
    held = [each for each in (_object(read, "PrimaryContainer"),) if each]
    held += _objects(read, "Containers")
    if held:
        _read_container(path, held[0], source)
    if len(held) > 1:
        source.decisions.append(f"there are {len(held)} containers; the first one was read")
        source.decisions += [
            f"not carried over: container {number}, `{_text(each, 'Image')}`{_names(each)}"
            for number, each in enumerate(held[1 : _SHOWN + 1], 2)
        ]


def _names(container: Mapping[str, Any]) -> str:
    names = ", ".join(printable(name, 200) for name in _object(container, "Environment"))
    return f" and its variables: {names}" if names else ""


def _read_container(path: Path, container: Mapping[str, Any], source: PresentServer) -> None:
    _note("container", container, source)
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
    """Return the release of vLLM that an image has; empty if it is not known."""
    if found := _LMI_RELEASE.search(image):
        known: dict[str, str] = json.loads(_PEERS.read_text(encoding="utf-8"))["lmi"]
        return known.get(found[1], "")
    _, _, tag = image.rpartition(_VLLM_IMAGE)
    release = _RELEASE.match(tag) if tag != image else None
    return release[1] if release else ""


def _read_environment(path: Path, container: Mapping[str, Any], source: PresentServer) -> None:
    environment = container.get("Environment") or {}
    if not isinstance(environment, dict) or not all(map(_is_variable, environment.items())):
        raise ConfigurationError(f"{path}: Environment: accepted: an object of names and texts")
    source.environment |= environment


def _is_variable(pair: tuple[Any, Any]) -> bool:
    name, value = pair
    return isinstance(value, str) and NAME.fullmatch(name) is not None and "\0" not in value


def _read_data(container: Mapping[str, Any], source: PresentServer) -> None:
    """Read where the model's files are: an archive, or a prefix that is mounted."""
    archive = container.get("ModelDataUrl")
    data = _object(_object(container, "ModelDataSource"), "S3DataSource")
    _note("files", data, source)
    if isinstance(place := data.get("S3Uri"), str):
        if data.get("CompressionType") == "Gzip":
            archive = place
        elif not source.variables.keys() & {"HF_MODEL_ID", "OPTION_MODEL_ID"}:
            source.environment["HF_MODEL_ID"] = place
            source.changes.append(
                f"the files at {printable(place, 200)} are downloaded at the start"
            )
    if isinstance(archive, str) and archive:
        source.archive = printable(archive, 200)
    for each in _objects(container, "AdditionalModelDataSources")[:_SHOWN]:
        more = _object(each, "S3DataSource")
        _note("files", more, source)
        source.decisions.append(
            f"channel {_text(each, 'ChannelName')}: download {_text(more, 'S3Uri')}"
        )


def _read_endpoint(read: Mapping[str, Any], source: PresentServer) -> None:
    """Read an endpoint or its configuration: both have variants."""
    is_running = "EndpointStatus" in read or "EndpointName" in read
    _note("endpoint" if is_running else "endpoint config", read, source)
    variants = _objects(read, "ProductionVariants")
    if variants:
        _note("variant of an endpoint" if is_running else "variant", variants[0], source)
        _read_variant(variants[0], source)
    if len(variants) > 1:
        source.decisions.append(f"there are {len(variants)} variants; the first one was read")
        source.decisions += [_of_variant(each) for each in variants[:_SHOWN]]
    _read_capture(_object(read, "DataCaptureConfig"), source)


def _of_variant(variant: Mapping[str, Any]) -> str:
    """Return what a variant has that a router must know."""
    names = ("InitialVariantWeight", "DesiredWeight", "CurrentWeight")
    weight = next((variant[name] for name in names if name in variant), "unknown")
    text = f"variant `{_text(variant, 'VariantName')}`: weight {printable(str(weight), 20)}"
    model, instance = (_text(variant, name) for name in ("ModelName", "InstanceType"))
    return text + (f", model `{model}`" if model else "") + (f", {instance}" if instance else "")


def _read_variant(variant: Mapping[str, Any], source: PresentServer) -> None:
    pools = _objects(variant, "InstancePools")
    _read_instance(
        _text(variant, "InstanceType") or _text(pools[0] if pools else {}, "InstanceType"), source
    )
    scaling = _object(variant, "ManagedInstanceScaling")
    least, most = (_count(scaling, name) for name in ("MinInstanceCount", "MaxInstanceCount"))
    if most:
        source.decisions.append(f"there are {least} to {most} instances")
    count = _count(variant, "InitialInstanceCount", "DesiredInstanceCount", "CurrentInstanceCount")
    if count and not source.copies:
        source.replicas = count
        source.changes.append(f"{count} instance(s): `deploy` writes as many replicas")


def _read_instance(instance: str, source: PresentServer) -> None:
    if not instance:
        return
    source.gpus = gpus_of(instance)
    if gpus := source.gpus:
        source.changes.append(f"{instance}: planned for {gpus.number} GPU(s), {gpus.kind}")
    else:
        source.decisions.append(what_it_has(instance))


def _read_capture(config: Mapping[str, Any], source: PresentServer) -> None:
    _note("capture", config, source)
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
    _note("component", read, source)
    specifications = [_object(read, "Specification"), *_objects(read, "Specifications")]
    held = [each for each in specifications if each]
    if held:
        _read_specification(path, held[0], source)
    if len(held) > 1:
        source.decisions.append(f"there are {len(held)} specifications; the first one was read")
        source.decisions += [
            f"not carried over: specification {number}{_names(_object(each, 'Container'))}"
            for number, each in enumerate(held[1 : _SHOWN + 1], 2)
        ]
    copies = _object(read, "RuntimeConfig")
    _note("copies", copies, source)
    if count := _count(copies, "DesiredCopyCount", "CurrentCopyCount"):
        source.replicas = source.copies = count
        source.changes.append(f"{count} copies: `deploy` writes as many replicas")


def _read_specification(path: Path, read: Mapping[str, Any], source: PresentServer) -> None:
    _note("specification", read, source)
    _read_instance(_text(read, "InstanceType"), source)
    container = _object(read, "Container")
    _note("container of a component", container, source)
    image = _object(container, "DeployedImage")
    _read_image(_text(image, "SpecifiedImage") or _text(image, "ResolvedImage"), source)
    _read_environment(path, container, source)
    if archive := _text(container, "ArtifactUrl"):
        source.archive = archive
    resources = _object(read, "ComputeResourceRequirements")
    _note("resources", resources, source)
    if count := _count(resources, "NumberOfAcceleratorDevicesRequired"):
        source.accelerators = count
        source.changes.append(f"a copy has {count} GPU(s)")


def _read_scaling(read: Mapping[str, Any], source: PresentServer) -> None:
    """Read what Application Auto Scaling has for a variant or a component."""
    _note("scaling", read, source)
    for each in _objects(read, "ScalableTargets")[:_SHOWN]:
        least, most = (
            printable(str(each.get(name)), 20) for name in ("MinCapacity", "MaxCapacity")
        )
        source.decisions.append(
            f"`{_text(each, 'ResourceId')}` scales from {least} to {most}: `deploy --with keda`"
        )
    for each in _objects(read, "ScalingPolicies")[:_SHOWN]:
        config = _object(each, "TargetTrackingScalingPolicyConfiguration")
        metric = _object(config, "PredefinedMetricSpecification") or _object(
            config, "CustomizedMetricSpecification"
        )
        name = _text(metric, "PredefinedMetricType") or _text(metric, "MetricName") or "steps"
        source.decisions.append(
            f"not carried over: policy `{_text(each, 'PolicyName')}` ({name}); "
            "deploy/README.md has the rules of `deploy --with keda`"
        )
