"""What AWS prints of a model and of an endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.migrate.fates import DECISIONS, FAMILIES, LEFT, gpus_of, what_it_has
from lmi_backend.migrate.sources import PresentServer, read_sources
from lmi_backend.plan.hardware import GPU_KINDS


def read(tmp_path: Path, *described: Any) -> PresentServer:
    paths = []
    for number, each in enumerate(described):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(each))
    return read_sources(paths, tmp_path)


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        ("ml.g5.2xlarge", (1, "A10G")),
        ("ml.g6e.48xlarge", (8, "L40S")),
        ("ml.g7.12xlarge", (2, "RTX-PRO-4500")),
        ("p5.48xlarge", (8, "H100")),
        ("ml.p6e-gb200.36xlarge", (4, "GB200")),
        ("ml.g7.xlarge", None),
        ("", None),
    ],
)
def test_the_gpus_of_an_instance(instance: str, expected: Any) -> None:
    assert gpus_of(instance) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plan_knows_each_kind_of_gpu(family: str) -> None:
    kind, sizes = FAMILIES[family]
    assert kind in GPU_KINDS
    assert sizes


@pytest.mark.parametrize(
    ("instance", "text"),
    [
        ("ml.g99.xlarge", "ml.g99.xlarge: its GPUs are not known; "),
        ("ml.trn2.48xlarge", "ml.trn2.48xlarge: has AWS Trainium2 devices, not GPUs; "),
        ("ml.p2.xlarge", "ml.p2.xlarge: has K80 GPUs, on which no vLLM runs; "),
        ("g6f.xlarge", "g6f.xlarge: has a part of an L4 GPU; "),
    ],
)
def test_an_instance_without_known_gpus_is_named(instance: str, text: str) -> None:
    assert gpus_of(instance) is None
    assert what_it_has(instance) == f"{text}choose where it runs with --gpu and --gpus"


def container(**more: Any) -> dict[str, Any]:
    return {"PrimaryContainer": {"Image": "a/djl-inference:0.33.0-lmi15", **more}}


def data(**more: Any) -> dict[str, Any]:
    return {"ModelDataSource": {"S3DataSource": {"S3Uri": "s3://b/m/", **more}}}


def test_the_engine_of_an_image_of_lmi_is_told_where_it_is_known(tmp_path: Path) -> None:
    image = "1.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.38.0-lmi29.0.0-cu130"
    (decision,) = read(tmp_path, container(Image=image)).decisions
    assert decision.startswith("the image has vLLM 0.28.0: ")
    assert "--engine-version 0.28.0" in decision
    assert read(tmp_path, container()).decisions == []


def test_where_the_files_are(tmp_path: Path) -> None:
    assert read(tmp_path, container(**data())).variables == {"HF_MODEL_ID": "s3://b/m/"}
    own = {"Environment": {"OPTION_MODEL_ID": "s3://b/own"}}
    assert "HF_MODEL_ID" not in read(tmp_path, container(**data(), **own)).variables
    for archived in ({"ModelDataUrl": "s3://b/m/"}, data(CompressionType="Gzip")):
        source = read(tmp_path, container(**archived))
        assert source.decisions == ["download s3://b/m/, and name it as another SOURCE"]


def test_what_somebody_must_decide(tmp_path: Path) -> None:
    variant = {
        "InstanceType": "ml.x.large",
        "InitialInstanceCount": 2,
        "ServerlessConfig": {"a": 1},
    }
    config = {"ProductionVariants": [variant, {}], "AsyncInferenceConfig": {"a": 1}}
    source = read(tmp_path, config, {"Containers": [{"Image": "a/tgi:1"}, {}]})
    decisions = "\n".join(source.decisions)
    for text in (
        "is asynchronous",
        "is serverless",
        "ml.x.large: its GPUs are not known",
        "there are 2 variants",
        "there are 2 containers",
        "is no LMI container",
    ):
        assert text in decisions
    assert (source.replicas, source.gpus, source.capture) == (2, None, "")


@pytest.mark.parametrize(
    "odd",
    [
        {"ProductionVariants": "a"},
        {"ProductionVariants": [1], "DataCaptureConfig": 1},
        {"PrimaryContainer": 1},
        {"PrimaryContainer": {"ModelDataSource": 1, "ModelDataUrl": 1, "Environment": None}},
        {"ProductionVariants": [{"InitialInstanceCount": "a", "InstanceType": 1}]},
    ],
)
def test_odd_descriptions_are_read_as_far_as_they_go(odd: Any, tmp_path: Path) -> None:
    assert read(tmp_path, odd).replicas == 0


COMPONENT: dict[str, Any] = {
    "InferenceComponentName": "llama",
    "EndpointName": "e",
    "InferenceComponentStatus": "InService",
    "Specification": {
        "ModelName": "m",
        "Container": {
            "DeployedImage": {"SpecifiedImage": "a/djl-inference:1", "ResolvedImage": "a@sha256:1"},
            "ArtifactUrl": "s3://b/model.tar.gz",
            "Environment": {"OPTION_ROLLING_BATCH": "vllm"},
        },
        "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 900},
        "ComputeResourceRequirements": {
            "NumberOfAcceleratorDevicesRequired": 2.0,
            "MinMemoryRequiredInMb": 1024,
        },
        "SchedulingConfig": {"PlacementStrategy": "SPREAD"},
    },
    "RuntimeConfig": {"DesiredCopyCount": 3, "CurrentCopyCount": 2},
}


@pytest.mark.parametrize("is_last", [False, True])
def test_an_inference_component_has_its_share_of_the_gpus(is_last: bool, tmp_path: Path) -> None:
    variant = {"VariantName": "all", "InstanceType": "ml.g5.48xlarge", "InitialInstanceCount": 1}
    config = {"EndpointConfigName": "c", "ProductionVariants": [variant]}
    source = read(tmp_path, *([config, COMPONENT] if is_last else [COMPONENT, config]))
    assert source.gpus == (2, "A10G")
    assert source.archive == "s3://b/model.tar.gz"
    assert source.variables == {
        "OPTION_ROLLING_BATCH": "vllm",
        "OPTION_MODEL_LOADING_TIMEOUT": "900",
    }
    # Copies of a component, not instances.
    assert source.replicas == 3
    texts = "\n".join([*source.decisions, *source.changes])
    for text in (
        "`ModelName`: its container is a model's",
        "a start may take 900 s: option.model_loading_timeout",
        "`MinMemoryRequiredInMb`: not carried over",
        "`SchedulingConfig`: not carried over",
    ):
        assert text in texts


@pytest.mark.parametrize(
    "around",
    [
        lambda more: {"ProductionVariants": [], **more},
        lambda more: {"ProductionVariants": [more]},
        lambda more: {"ProductionVariants": [], "DataCaptureConfig": more},
        lambda more: {"PrimaryContainer": {}, **more},
        lambda more: {"PrimaryContainer": more},
        lambda more: container(ModelDataSource={"S3DataSource": more}),
        lambda more: {"Specification": {}, **more},
        lambda more: {"Specification": more},
        lambda more: {"Specification": {"Container": more}},
        lambda more: {"Specification": {"ComputeResourceRequirements": more}},
    ],
)
def test_each_present_member_is_told(around: Any, tmp_path: Path) -> None:
    members = {name: {"a": 1} for name in (*DECISIONS, *LEFT, "Newest")}
    source = read(tmp_path, around(members))
    assert "`Newest`: is not known here; compare it by hand" in source.decisions
    assert {f"`{name}`: {text}" for name, text in DECISIONS.items()} <= {*source.decisions}
    left = {f"`{name}`: not carried over: {text}" for name, text in LEFT.items()}
    assert left <= {*source.changes}


def test_several_variants_and_pools(tmp_path: Path) -> None:
    pools = [{"InstanceType": "ml.g6.12xlarge", "Priority": 1}]
    variants = [{"VariantName": "blue", "InstancePools": pools}, {"VariantName": "green"}]
    capture = {"EnableCapture": True, "CaptureOptions": [{"CaptureMode": "Input"}]}
    source = read(tmp_path, {"ProductionVariants": variants, "DataCaptureConfig": capture})
    assert source.gpus == (4, "L4")
    texts = "\n".join(source.decisions)
    for text in (
        "there are 2 variants; the first one was read",
        "only requests are captured: `replay` needs --against",
    ):
        assert text in texts


def test_an_endpoint_is_not_its_configuration(tmp_path: Path) -> None:
    variant = {"VariantName": "all", "CurrentInstanceCount": 2, "DesiredInstanceCount": 3}
    endpoint = {"EndpointName": "e", "EndpointConfigName": "c", "ProductionVariants": [variant]}
    source = read(tmp_path, endpoint)
    assert source.replicas == 3
    assert "`describe-endpoint-config` prints has its instance types" in "\n".join(source.decisions)
