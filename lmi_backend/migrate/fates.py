"""What becomes of each member that AWS prints, and the GPUs of its instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple


class Fate(NamedTuple):
    """What becomes of a member."""

    text: str = ""
    """For people; empty: it is used, or tells nothing about how the model is served."""
    needs_decision: bool = False


_USED: Final = Fate()
_ABOUT: Final = Fate()
"""Names, numbers and times of the thing itself."""


def _left(text: str) -> Fate:
    return Fate(f"not carried over: {text}")


def _decide(text: str) -> Fate:
    return Fate(text, needs_decision=True)


_ROLE: Final = _decide("a role reads the files on S3; give the server credentials that may")
_NETWORK: Final = _decide(
    "the model is in a VPC; keep the network of the new server closed as well"
)
_ISOLATED: Final = _decide(
    "the network is isolated; name the files of the model, and serve offline"
)
_KEY: Final = _decide("data is encrypted with a key of KMS; choose encrypted volumes")
_METRICS: Final = _left("metrics are at /metrics here, and none are pushed to CloudWatch")
_DOWNLOAD: Final = _left("a download has no limit here; probes of `deploy` leave time for it")
_ADAPTER: Final = _decide(
    "is an adapter; put its files in adapters/NAME of the base model's folder"
)
_PARTITIONS: Final = _decide("GPUs are shared in parts (MIG); name the part with --gpu-memory")
_SCALING: Final = _decide("instances scale; `deploy --with keda` scales pods")
_ROUTING: Final = _decide("choose a router for several servers: docs/fleet.md")
_RESERVED: Final = _left("reserve machines where the new server runs")
_SERVERLESS: Final = _decide("the endpoint is serverless; choose GPUs with --gpus and --gpu-memory")
_SHADOW: Final = _decide("shadow variants have none here; `replay` compares two servers")
_ASYNC: Final = _decide(
    "the endpoint is asynchronous, from S3 to S3; requests are answered directly here"
)
_EXPLAINER: Final = _left("no explanations are computed here")
_VARIANT_SCALE: Final = {
    "VariantName": _USED,
    "InstancePools": _decide("instances are of several types; the first one was read"),
    "ManagedInstanceScaling": _SCALING,
    "RoutingConfig": _ROUTING,
    "CapacityReservationConfig": _RESERVED,
    "AcceleratorPartitionLayouts": _PARTITIONS,
}
FATES: Final[Mapping[str, Mapping[str, Fate]]] = {
    "endpoint config": {
        **dict.fromkeys(("EndpointConfigName", "EndpointConfigArn", "CreationTime"), _ABOUT),
        **dict.fromkeys(("ProductionVariants", "DataCaptureConfig"), _USED),
        "KmsKeyId": _KEY,
        "AsyncInferenceConfig": _ASYNC,
        "ExplainerConfig": _EXPLAINER,
        "ShadowProductionVariants": _SHADOW,
        "ExecutionRoleArn": _ROLE,
        "VpcConfig": _NETWORK,
        "EnableNetworkIsolation": _ISOLATED,
        "MetricsConfig": _METRICS,
        "CrossRegionTrafficConfig": _left("choose a router for several regions"),
    },
    "endpoint": {
        **dict.fromkeys(("EndpointName", "EndpointArn", "EndpointStatus"), _ABOUT),
        **dict.fromkeys(("FailureReason", "CreationTime", "LastModifiedTime"), _ABOUT),
        **dict.fromkeys(("ProductionVariants", "DataCaptureConfig"), _USED),
        "EndpointConfigName": _decide(
            "is an endpoint; what `describe-endpoint-config` prints has its instance types too"
        ),
        "LastDeploymentConfig": _left("who runs the server rolls out new releases"),
        "AsyncInferenceConfig": _ASYNC,
        "PendingDeploymentSummary": _decide("a deployment is pending; read it again afterwards"),
        "ExplainerConfig": _EXPLAINER,
        "ShadowProductionVariants": _SHADOW,
        "MetricsConfig": _METRICS,
        "CrossRegionTrafficConfig": _left("choose a router for several regions"),
    },
    "variant": {
        **_VARIANT_SCALE,
        **dict.fromkeys(("ModelName", "InitialInstanceCount", "InstanceType"), _USED),
        "VariantInstanceProvisionTimeoutInSeconds": _left("no machines are started here"),
        "InitialVariantWeight": _USED,
        "AcceleratorType": _left("Elastic Inference"),
        "CoreDumpConfig": _left("core dumps are not collected"),
        "ServerlessConfig": _SERVERLESS,
        "VolumeSizeInGB": _decide("give the new server as large a volume for the model's files"),
        "ModelDataDownloadTimeoutInSeconds": _DOWNLOAD,
        "ContainerStartupHealthCheckTimeoutInSeconds": _USED,
        "EnableSSMAccess": _left("who runs the server gives access to it"),
        "InferenceAmiVersion": _left("the new machine needs a driver for CUDA of the engine"),
    },
    "variant of an endpoint": {
        **_VARIANT_SCALE,
        "DeployedImages": _ABOUT,
        **dict.fromkeys(("CurrentWeight", "DesiredWeight"), _USED),
        **dict.fromkeys(("CurrentInstanceCount", "DesiredInstanceCount"), _USED),
        "VariantStatus": _ABOUT,
        "CurrentServerlessConfig": _SERVERLESS,
        "DesiredServerlessConfig": _SERVERLESS,
    },
    "capture": {
        **dict.fromkeys(("EnableCapture", "DestinationS3Uri", "CaptureOptions"), _USED),
        **dict.fromkeys(("CaptureStatus", "CaptureContentTypeHeader"), _ABOUT),
        **dict.fromkeys(("InitialSamplingPercentage", "CurrentSamplingPercentage"), _ABOUT),
        "KmsKeyId": _decide(
            "captures are encrypted; `replay` needs credentials that may read them"
        ),
    },
    "model": {
        **dict.fromkeys(("ModelName", "CreationTime", "ModelArn"), _ABOUT),
        **dict.fromkeys(("PrimaryContainer", "Containers"), _USED),
        "InferenceExecutionConfig": _decide(
            "several containers answer; name the one with the model"
        ),
        "ExecutionRoleArn": _ROLE,
        "VpcConfig": _NETWORK,
        "EnableNetworkIsolation": _ISOLATED,
        "DeploymentRecommendation": _left("`plan` says what fits"),
    },
    "container": {
        "ContainerHostname": _ABOUT,
        **dict.fromkeys(("Image", "ModelDataUrl", "ModelDataSource", "Environment"), _USED),
        "ImageConfig": _left("the image comes from your registry"),
        "Mode": _USED,
        "AdditionalModelDataSources": _decide(
            "there are more files, of a draft model or adapters; download them"
        ),
        "ModelPackageName": _decide(
            "the model is a package of a marketplace; its files must be on disk or S3"
        ),
        "InferenceSpecificationName": _left("it is that of the package"),
        "MultiModelConfig": _decide("the endpoint has many models; name the folder of each"),
        "ContainerMetricsConfig": _METRICS,
    },
    "files": {
        **dict.fromkeys(("S3Uri", "CompressionType"), _USED),
        **dict.fromkeys(("S3DataType", "ETag", "ManifestEtag"), _ABOUT),
        "ModelAccessConfig": _decide("the model has a license that you accepted; it still applies"),
        "HubAccessConfig": _decide("the files are of a hub of SageMaker; download them first"),
        "ManifestS3Uri": _decide("a manifest lists the files; download those that it lists"),
    },
    "component": {
        **dict.fromkeys(("InferenceComponentName", "InferenceComponentArn"), _ABOUT),
        **dict.fromkeys(("EndpointName", "EndpointArn", "VariantName"), _ABOUT),
        **dict.fromkeys(("FailureReason", "CreationTime", "LastModifiedTime"), _ABOUT),
        "InferenceComponentStatus": _ABOUT,
        **dict.fromkeys(("Specification", "Specifications", "RuntimeConfig"), _USED),
        "LastDeploymentConfig": _left("who runs the server rolls out new releases"),
    },
    "specification": {
        **dict.fromkeys(("InstanceType", "Container", "ComputeResourceRequirements"), _USED),
        "ModelName": _decide("its container is a model's; add what `describe-model` prints of it"),
        "StartupParameters": _USED,
        "BaseInferenceComponentName": _ADAPTER,
        "DataCacheConfig": _left("files stay where they were downloaded"),
        "SchedulingConfig": _left("who runs the server places its copies"),
    },
    "startup": {
        "ContainerStartupHealthCheckTimeoutInSeconds": _USED,
        "ModelDataDownloadTimeoutInSeconds": _DOWNLOAD,
    },
    "container of a component": {
        **dict.fromkeys(("DeployedImage", "ArtifactUrl", "Environment"), _USED),
        "ContainerMetricsConfig": _METRICS,
    },
    "resources": {
        "NumberOfAcceleratorDevicesRequired": _USED,
        "NumberOfCpuCoresRequired": _left("`deploy` requests the cores that the engine needs"),
        "MinMemoryRequiredInMb": _left("`deploy` requests the memory that the model needs"),
        "MaxMemoryRequiredInMb": _left("`deploy` requests the memory that the model needs"),
        "AcceleratorPartitionType": _PARTITIONS,
    },
    "copies": {
        **dict.fromkeys(("DesiredCopyCount", "CurrentCopyCount"), _USED),
        "PlacementStatus": _ABOUT,
    },
    "scaling": {"ScalableTargets": _USED, "ScalingPolicies": _USED, "NextToken": _ABOUT},
}
"""Of each structure the members that AWS has."""


def fates_of(structure: str, read: Mapping[str, Any]) -> Iterator[Fate]:
    """Yield what is to be told about the members that a structure has; each names its member."""
    for name, value in read.items():
        if value in (None, False, "", [], {}):
            continue
        fate = FATES[structure].get(name, _decide("is not known here; compare it by hand"))
        if fate.text:
            yield fate._replace(text=f"`{name}`: {fate.text}" if name.isalnum() else fate.text)


class Gpus(NamedTuple):
    """What an instance has."""

    number: int
    kind: str
    """As `--gpu` has it."""


_ONE: Final = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
_G5: Final = dict.fromkeys(_ONE, 1) | {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
_G7: Final = dict.fromkeys(_ONE[1:4], 1) | {"12xlarge": 2, "24xlarge": 4, "48xlarge": 8}
FAMILIES: Final[dict[str, tuple[str, dict[str, int]]]] = {
    "g4dn": ("T4", dict.fromkeys(_ONE, 1) | {"12xlarge": 4}),
    "g5": ("A10G", _G5),
    "g6": ("L4", _G5),
    "gr6": ("L4", {"4xlarge": 1, "8xlarge": 1}),
    "g6e": ("L40S", _G5),
    "g7": ("RTX-PRO-4500", _G7),
    "g7e": ("RTX-PRO-6000", _G7),
    "p3": ("V100-16GB", {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    "p3dn": ("V100-32GB", {"24xlarge": 8}),
    "p4d": ("A100-40GB", {"24xlarge": 8}),
    "p4de": ("A100-80GB", {"24xlarge": 8}),
    "p5": ("H100", {"4xlarge": 1, "48xlarge": 8}),
    "p5e": ("H200", {"48xlarge": 8}),
    "p5en": ("H200", {"48xlarge": 8}),
    "p6-b200": ("B200", {"48xlarge": 8}),
    "p6-b300": ("B300", {"48xlarge": 8}),
    "p6e-gb200": ("GB200", {"36xlarge": 4}),
}
"""Of each family the kind of GPU, and the number of GPUs of each size."""
OTHERS: Final = {
    "p2": "has K80 GPUs, on which no vLLM runs",
    "g6f": "has a part of an L4 GPU",
    "gr6f": "has a part of an L4 GPU",
    "inf1": "has AWS Inferentia devices, not GPUs",
    "inf2": "has AWS Inferentia2 devices, not GPUs",
    "trn1": "has AWS Trainium devices, not GPUs",
    "trn1n": "has AWS Trainium devices, not GPUs",
    "trn2": "has AWS Trainium2 devices, not GPUs",
    "dl1": "has Gaudi devices, not GPUs",
}
"""What families have that a model cannot be planned for by their names."""


def gpus_of(instance: str) -> Gpus | None:
    """Return the GPUs of an instance type such as ml.g5.12xlarge; None for an unknown one."""
    family, size = _parts(instance)
    kind, sizes = FAMILIES.get(family, ("", {}))
    return Gpus(sizes[size], kind) if size in sizes else None


def what_it_has(instance: str) -> str:
    """Return what is to be said of an instance type whose GPUs `gpus_of` does not know."""
    family, _ = _parts(instance)
    text = OTHERS.get(family, "its GPUs are not known")
    return f"{instance}: {text}; choose where it runs with --gpu and --gpus"


def _parts(instance: str) -> tuple[str, str]:
    family, _, size = instance.removeprefix("ml.").partition(".")
    return family, size
