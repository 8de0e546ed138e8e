"""`migrate` knows each member that AWS's own library says its commands print, and each GPU."""

import json
import re
import subprocess
from typing import Any

import pytest

from lmi_backend.migrate.fates import DECISIONS, LEFT, OTHERS, USED, gpus_of
from tests.support.run.places import CLIENTS_PYTHON

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
    "startup": ("InferenceComponentStartupParameters",),
    "container of a component": ("InferenceComponentContainerSpecificationSummary",),
    "resources": ("InferenceComponentComputeResourceRequirements",),
    "copies": ("InferenceComponentRuntimeConfigSummary",),
}
READ_WHOLE = {
    # One member, an environment, an image of two names, and what is listed with its name.
    *("ModelDataSource", "EnvironmentMap", "DeployedImage", "CaptureOption"),
    # What is about the moment, or about Amazon's own programs.
    *("ProductionVariantStatus", "InferenceComponentPlacementStatus", "CaptureContentTypeHeader"),
}
WITHOUT = re.compile(r"ml\.[cmrt]\d")
"""Instance types without an accelerator."""
PRINT = """
import json
from botocore.session import get_session
names = ("DescribeEndpointConfig", "DescribeEndpoint", "DescribeModel",
         "DescribeInferenceComponent")
model = get_session().get_service_model("sagemaker")
found = {}
def walk(shape):
    while shape.type_name == "list":
        shape = shape.member
    if shape.type_name == "structure" and shape.name not in found:
        found[shape.name] = {}
        for name, member in shape.members.items():
            found[shape.name][name] = walk(member)
    return shape.name if shape.type_name in ("structure", "map") else ""
for each in names:
    walk(model.operation_model(each).output_shape)
instances = model.shape_for("ProductionVariantInstanceType")
print(json.dumps({"shapes": found, "instances": instances.enum}))
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    done = subprocess.run(
        [str(CLIENTS_PYTHON), "-c", PRINT], check=True, capture_output=True, text=True
    )
    read: dict[str, Any] = json.loads(done.stdout)
    return read


@pytest.fixture(scope="module")
def shapes(printed: dict[str, Any]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = printed["shapes"]
    return found


@pytest.mark.parametrize("structure", SHAPES)
def test_each_member_is_used_or_has_a_text(
    structure: str, shapes: dict[str, dict[str, str]]
) -> None:
    members: dict[str, Any] = {}
    for name in SHAPES[structure]:
        members |= shapes[name]
    assert members.keys() - USED - DECISIONS.keys() - LEFT.keys() == set()
    read = {each for names in SHAPES.values() for each in names} | READ_WHOLE
    unread = {
        name: inner
        for name, inner in members.items()
        if inner and name in USED and inner not in read
    }
    assert unread == {}


def test_what_each_instance_with_accelerators_has_is_known(printed: dict[str, Any]) -> None:
    accelerated = [each for each in printed["instances"] if WITHOUT.match(each) is None]
    unknown = [each for each in accelerated if gpus_of(each) is None]
    assert {each.split(".")[1] for each in unknown} - OTHERS.keys() == set()
    assert len(accelerated) > len(unknown)
