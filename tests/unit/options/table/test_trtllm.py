"""Engines that TensorRT-LLM built ahead are refused, and what only builds them."""

from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options.spec import SPECS
from lmi_backend.options.table import OPTIONS
from lmi_backend.options.table.trtllm import REASON
from tests.support.records.plans import options_of

REFUSE = SPECS["trtllm"].implementation.refuse
BUILDING = [each.name for each in OPTIONS if each.scope == "trtllm" and each.reason == REASON]


def judge(properties: str = "", *, model: str = "") -> str:
    """Return the error; empty for none."""
    assert REFUSE is not None
    try:
        REFUSE(options_of(f"option.rolling_batch=trtllm\n{properties}"), model)
    except ConfigurationError as error:
        return str(error)
    return ""


def folder_with(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).touch()
    return str(folder)


@pytest.mark.parametrize("value", ["tensorrt", "TensorRT", " tensorrt "])
def test_the_backend_is_refused_with_advice(value: str) -> None:
    verdict = judge(f"option.backend={value}")
    assert "option.backend" in verdict
    assert "no TensorRT backend since 1.3.0rc22; leave it out and serve the checkpoint" in verdict
    assert judge("option.backend=pytorch") == ""


@pytest.mark.parametrize("properties", ["", "option.backend=pytorch"])
def test_a_folder_of_built_engines_is_refused(tmp_path: Path, properties: str) -> None:
    model = folder_with(tmp_path, "config.json", "rank10.engine")
    verdict = judge(properties, model=model)
    assert verdict.startswith(f"{model}: rank10.engine is a built engine")
    assert "serve the checkpoint" in verdict


def test_weights_beside_a_built_engine_can_be_served(tmp_path: Path) -> None:
    model = folder_with(tmp_path, "config.json", "rank0.engine", "model.safetensors")
    assert "option.backend=pytorch serves" in judge(model=model)
    assert judge("option.backend=pytorch", model=model) == ""


@pytest.mark.parametrize("model", ["", "org/model", "s3://bucket/model", "/no/such", "a\0b"])
def test_a_place_that_cannot_be_looked_into_says_nothing(model: str) -> None:
    assert judge(model=model) == ""


@pytest.mark.parametrize("name", BUILDING)
def test_every_option_that_only_builds_engines_is_refused(name: str) -> None:
    verdict = judge(f"{name}=1")
    assert name in verdict
    assert "a checkpoint that is quantised already" in verdict


def test_so_is_the_variable_of_a_quantisation() -> None:
    with pytest.raises(ConfigurationError, match=r"HF_MODEL_QUANTIZE=awq.* quantised already"):
        options_of("option.rolling_batch=trtllm", {"HF_MODEL_QUANTIZE": "awq"})
