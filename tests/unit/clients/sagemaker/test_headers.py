"""What AWS's libraries ask for in headers is served, or refused by its name."""

import botocore.session
import pytest

from lmi_backend.clients.sagemaker.headers import HARMLESS, check_extras, target_of
from lmi_backend.errors import HttpError

PREFIX = "x-amzn-sagemaker-"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("session-id", "NEW_SESSION", "NEW_SESSION: sessions are not served"),
        ("enable-explanations", "`true`", "EnableExplanations: answers are not explained"),
        ("enable-explanations", "probability > `0.8`", "EnableExplanations"),
    ],
)
def test_what_the_service_would_add_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(HttpError, match=words) as refused:
        check_extras({PREFIX + name: value}, {})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"session-id": "0f3c"},
        {"enable-explanations": "`false`"},
        {"inference-id": "a", "target-variant": "AllTraffic", "custom-attributes": "a=b"},
    ],
)
def test_other_headers_ask_for_nothing(headers: dict[str, str]) -> None:
    check_extras({PREFIX + name: value for name, value in headers.items()}, {})


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ({}, ""),
        ({"target-variant": "AllTraffic"}, ""),
        ({"inference-component": "a"}, "a"),
        ({"target-container-hostname": "a"}, "a"),
        ({"target-container-hostname": "a", "target-model": "b"}, "b"),
    ],
)
def test_a_header_may_name_the_model(headers: dict[str, str], target: str) -> None:
    assert target_of({PREFIX + name: value for name, value in headers.items()}) == target


@pytest.mark.parametrize("operation", ["InvokeEndpoint", "InvokeEndpointWithResponseStream"])
def test_each_member_of_an_invocation_is_known(operation: str) -> None:
    service = botocore.session.get_session().get_service_model("sagemaker-runtime")
    members = {*service.operation_model(operation).input_shape.members}
    named = {"InferenceComponentName", "TargetContainerHostname", "TargetModel"}
    read = {"Accept", "Body", "ContentType", "EnableExplanations", "EndpointName", *named}
    assert {"Body", "EndpointName"} <= members <= read | HARMLESS.keys()
