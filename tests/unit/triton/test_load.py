"""What the stub reads from Triton's arguments."""

import json

import pytest

from lmi_backend.triton.load import reports_vllm_metrics


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"REPORT_CUSTOM_METRICS": "true"}, True),
        ({"REPORT_CUSTOM_METRICS": "False"}, False),
    ],
)
def test_the_switch_of_tritons_vllm_backend_is_honoured(
    settings: dict[str, str], expected: bool
) -> None:
    parameters = {name: {"string_value": value} for name, value in settings.items()}
    arguments = {"model_config": json.dumps({"parameters": parameters})}
    assert reports_vllm_metrics(arguments) is expected
