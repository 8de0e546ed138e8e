"""What becomes of each member that AWS prints, and the GPUs of its instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

USED: Final = frozenset(
    {
        # Names, states and times of the thing itself.
        *("EndpointConfigName", "EndpointConfigArn", "EndpointName", "EndpointArn", "ModelArn"),
        *("EndpointStatus", "FailureReason", "CreationTime", "LastModifiedTime", "DeployedImages"),
        *("VariantStatus", "CaptureStatus", "CaptureContentTypeHeader", "ContainerHostname"),
        *("InitialSamplingPercentage", "CurrentSamplingPercentage", "S3DataType", "ETag"),
        *("ManifestEtag", "InferenceComponentName", "InferenceComponentArn", "NextToken"),
        *("InferenceComponentStatus", "PlacementStatus", "VariantName"),
        # What is read.
        *("ProductionVariants", "DataCaptureConfig", "ModelName", "InitialInstanceCount"),
        *("InstanceType", "InitialVariantWeight", "CurrentWeight", "DesiredWeight"),
        *("CurrentInstanceCount", "DesiredInstanceCount", "EnableCapture", "DestinationS3Uri"),
        *("CaptureOptions", "PrimaryContainer", "Containers", "Image", "ModelDataUrl", "Mode"),
        *("ModelDataSource", "Environment", "S3Uri", "CompressionType", "Specification"),
        *("Specifications", "RuntimeConfig", "Container", "ComputeResourceRequirements"),
        *("StartupParameters", "DeployedImage", "ArtifactUrl", "DesiredCopyCount"),
        *("NumberOfAcceleratorDevicesRequired", "CurrentCopyCount"),
        "ContainerStartupHealthCheckTimeoutInSeconds",
    }
)
"""Members that are used, or tell nothing about how the model is served."""
_PARTITIONS: Final = "GPUs are shared in parts (MIG); name the part with --gpu-memory"
_SERVERLESS: Final = "the endpoint is serverless; choose GPUs with --gpus and --gpu-memory"
DECISIONS: Final = {
    "AcceleratorPartitionLayouts": _PARTITIONS,
    "AcceleratorPartitionType": _PARTITIONS,
    "AdditionalModelDataSources": "there are more files, of a draft model or adapters; download "
    "them",
    "AsyncInferenceConfig": "the endpoint is asynchronous, from S3 to S3; requests are answered "
    "directly here",
    "BaseInferenceComponentName": "is an adapter; put its files in adapters/NAME of the base "
    "model's folder",
    "CurrentServerlessConfig": _SERVERLESS,
    "DesiredServerlessConfig": _SERVERLESS,
    "EnableNetworkIsolation": "the network is isolated; name the files of the model, and serve "
    "offline",
    "ExecutionRoleArn": "a role reads the files on S3; give the server credentials that may",
    "HubAccessConfig": "the files are of a hub of SageMaker; download them first",
    "InferenceExecutionConfig": "several containers answer; name the one with the model",
    "InstancePools": "instances are of several types; the first one was read",
    "KmsKeyId": "data is encrypted with a key of KMS; choose encrypted volumes, and give `replay` "
    "credentials that may read captures",
    "ManagedInstanceScaling": "instances scale; `deploy --with keda` scales pods",
    "ManifestS3Uri": "a manifest lists the files; download those that it lists",
    "ModelAccessConfig": "the model has a license that you accepted; it still applies",
    "ModelPackageName": "the model is a package of a marketplace; its files must be on disk or S3",
    "MultiModelConfig": "the endpoint has many models; name the folder of each",
    "PendingDeploymentSummary": "a deployment is pending; read it again afterwards",
    "RoutingConfig": "choose a router for several servers: docs/fleet.md",
    "ServerlessConfig": _SERVERLESS,
    "ShadowProductionVariants": "shadow variants have none here; `replay` compares two servers",
    "VolumeSizeInGB": "give the new server as large a volume for the model's files",
    "VpcConfig": "the model is in a VPC; keep the network of the new server closed as well",
}
"""What somebody must decide about a member."""
_DOWNLOAD: Final = "a download has no limit here; probes of `deploy` leave time for it"
_METRICS: Final = "metrics are at /metrics here, and none are pushed to CloudWatch"
_MEMORY: Final = "`deploy` requests the memory that the model needs"
LEFT: Final = {
    "AcceleratorType": "Elastic Inference",
    "CapacityReservationConfig": "reserve machines where the new server runs",
    "ContainerMetricsConfig": _METRICS,
    "CoreDumpConfig": "core dumps are not collected",
    "CrossRegionTrafficConfig": "choose a router for several regions",
    "DataCacheConfig": "files stay where they were downloaded",
    "DeploymentRecommendation": "`plan` says what fits",
    "EnableSSMAccess": "who runs the server gives access to it",
    "ExplainerConfig": "no explanations are computed here",
    "ImageConfig": "the image comes from your registry",
    "InferenceAmiVersion": "the new machine needs a driver for CUDA of the engine",
    "InferenceSpecificationName": "it is that of the package",
    "LastDeploymentConfig": "who runs the server rolls out new releases",
    "MaxMemoryRequiredInMb": _MEMORY,
    "MetricsConfig": _METRICS,
    "MinMemoryRequiredInMb": _MEMORY,
    "ModelDataDownloadTimeoutInSeconds": _DOWNLOAD,
    "NumberOfCpuCoresRequired": "`deploy` requests the cores that the engine needs",
    "SchedulingConfig": "who runs the server places its copies",
    "VariantInstanceProvisionTimeoutInSeconds": "no machines are started here",
}
"""Why a member is not carried over."""


def fates_of(read: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield what is to be told about members that are there, and whether it needs a decision."""
    for name, value in read.items():
        if name in USED or value in (None, False, "", [], {}):
            continue
        member = f"`{name}`: " if name.isalnum() else ""
        if name in LEFT:
            yield f"{member}not carried over: {LEFT[name]}", False
        else:
            yield member + DECISIONS.get(name, "is not known here; compare it by hand"), True


class Gpus(NamedTuple):
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
