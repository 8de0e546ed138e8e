"""`migrate` knows each member that AWS's own library says its commands print."""

import json
import subprocess
from typing import Any

import pytest

from lmi_backend.migration.fates import FATES
from tests.support.places import CLIENTS_PYTHON

SHAPES = {
    "endpoint config": ("DescribeEndpointConfigOutput",),
    "endpoint": ("DescribeEndpointOutput",),
    "variant": ("ProductionVariant",),
    "variant of an endpoint": ("ProductionVariantSummary",),
    "capture": ("DataCaptureConfig", "DataCaptureConfigSummary"),
    "model": ("DescribeModelOutput",),
    "container": ("ContainerDefinition",),
    "files": ("S3ModelDataSource",),
    "component": ("DescribeInferenceComponentOutput",),
    "specification": ("InferenceComponentSpecificationSummary",),
    "container of a component": ("InferenceComponentContainerSpecificationSummary",),
    "resources": ("InferenceComponentComputeResourceRequirements",),
    "copies": ("InferenceComponentRuntimeConfigSummary",),
    "scaling": ("DescribeScalableTargetsResponse", "DescribeScalingPoliciesResponse"),
}
READ_WHOLE = {
    # One member, an environment, an image of two names, and what is listed with its name.
    *("ModelDataSource", "EnvironmentMap", "DeployedImage", "CaptureOption"),
    *("ScalableTarget", "ScalingPolicy"),
    # What is about the moment, or about Amazon's own programs.
    *("ProductionVariantStatus", "InferenceComponentPlacementStatus", "CaptureContentTypeHeader"),
}
PRINT = """
import json
from botocore.session import get_session
names = {"sagemaker": ("DescribeEndpointConfig", "DescribeEndpoint", "DescribeModel",
                       "DescribeInferenceComponent"),
         "application-autoscaling": ("DescribeScalableTargets", "DescribeScalingPolicies")}
found = {}
def walk(shape):
    while shape.type_name == "list":
        shape = shape.member
    if shape.type_name == "structure" and shape.name not in found:
        found[shape.name] = {}
        for name, member in shape.members.items():
            found[shape.name][name] = walk(member)
    return shape.name if shape.type_name in ("structure", "map") else ""
for service, operations in names.items():
    model = get_session().get_service_model(service)
    for each in operations:
        walk(model.operation_model(each).output_shape)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def shapes() -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [str(CLIENTS_PYTHON), "-c", PRINT], check=True, capture_output=True, text=True
    )
    read: dict[str, dict[str, str]] = json.loads(done.stdout)
    return read


@pytest.mark.parametrize("structure", FATES)
def test_each_member_is_used_or_has_a_text(
    structure: str, shapes: dict[str, dict[str, str]]
) -> None:
    members: dict[str, Any] = {}
    for name in SHAPES[structure]:
        members |= shapes[name]
    known = FATES[structure]
    assert members.keys() - known.keys() == set()
    read = {each for names in SHAPES.values() for each in names} | READ_WHOLE
    unread = {
        name: inner
        for name, inner in members.items()
        if inner and not known[name].text and inner not in read
    }
    assert unread == {}
