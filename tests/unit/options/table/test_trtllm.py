"""Engines that TensorRT-LLM built ahead are refused, and what only builds them."""

from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.options.spec import SPECS
from lmi_backend.options.table import OPTIONS
from lmi_backend.options.table.trtllm import REASON

REFUSE = SPECS["trtllm"].implementation.refuse
BUILDING = [each.name for each in OPTIONS if each.scope == "trtllm" and each.reason == REASON]


def judge(folder: Path, properties: str = "", *, model: str = "") -> str:
    """Return the error; empty for none."""
    lines = parse_properties(f"option.rolling_batch=trtllm\n{properties}")
    assert REFUSE is not None
    try:
        options = resolve_options(lines, {}, folder=folder)
        REFUSE(options, model)
    except ConfigurationError as error:
        return str(error)
    return ""


def folder_with(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).touch()
    return str(folder)


@pytest.mark.parametrize("value", ["tensorrt", "TensorRT", " tensorrt "])
def test_the_backend_is_refused_with_advice(tmp_path: Path, value: str) -> None:
    verdict = judge(tmp_path, f"option.backend={value}")
    assert "option.backend" in verdict
    assert "no TensorRT backend since 1.3.0rc22; leave it out and serve the checkpoint" in verdict
    assert judge(tmp_path, "option.backend=pytorch") == ""


@pytest.mark.parametrize("properties", ["", "option.backend=pytorch"])
def test_a_folder_of_built_engines_is_refused(tmp_path: Path, properties: str) -> None:
    model = folder_with(tmp_path, "config.json", "rank10.engine")
    verdict = judge(tmp_path, properties, model=model)
    assert verdict.startswith(f"{model}: rank10.engine is a built engine")
    assert "serve the checkpoint" in verdict


def test_weights_beside_a_built_engine_can_be_served(tmp_path: Path) -> None:
    model = folder_with(tmp_path, "config.json", "rank0.engine", "model.safetensors")
    assert "option.backend=pytorch serves" in judge(tmp_path, model=model)
    assert judge(tmp_path, "option.backend=pytorch", model=model) == ""


@pytest.mark.parametrize("model", ["", "org/model", "s3://bucket/model", "/no/such", "a\0b"])
def test_a_place_that_cannot_be_looked_into_says_nothing(tmp_path: Path, model: str) -> None:
    assert judge(tmp_path, model=model) == ""


@pytest.mark.parametrize("name", BUILDING)
def test_every_option_that_only_builds_engines_is_refused(tmp_path: Path, name: str) -> None:
    verdict = judge(tmp_path, f"{name}=1")
    assert name in verdict
    assert "a checkpoint that is quantised already" in verdict


def test_so_is_the_variable_of_a_quantisation(tmp_path: Path) -> None:
    lines = parse_properties("option.rolling_batch=trtllm")
    with pytest.raises(ConfigurationError, match=r"HF_MODEL_QUANTIZE=awq.* quantised already"):
        resolve_options(lines, {"HF_MODEL_QUANTIZE": "awq"}, folder=tmp_path)
