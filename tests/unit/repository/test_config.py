"""Every written config.pbtxt is read by Triton's own proto, so a misspelt field cannot pass."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import load_options
from lmi_backend.plan import EnginePlan, make_plan
from lmi_backend.repository.pbtxt import render
from lmi_backend.repository.tensors import INPUTS, OUTPUTS
from lmi_backend.repository.writer import MODEL_PY, write_backend, write_model

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted(path.name for path in (ROOT / "model_repository").iterdir())


def parse(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def plan(**changes: Any) -> EnginePlan:
    return EnginePlan(**{"engine": "echo", "model": "", "python": "python3"} | changes)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source é"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n")
    return folder


def test_the_written_configuration_is_what_triton_reads(source: Path, tmp_path: Path) -> None:
    folder = write_model(plan(queue_size=7), source, tmp_path / "models", "m-1.x")
    config = parse((folder / "config.pbtxt").read_text(encoding="utf-8"))
    assert (config.name, config.backend, config.max_batch_size) == ("m-1.x", "python", 0)
    assert config.model_transaction_policy.decoupled
    (group,) = config.instance_group
    assert (group.kind, group.count) == (model_config_pb2.ModelInstanceGroup.KIND_MODEL, 1)
    assert config.dynamic_batching.default_queue_policy.max_queue_size == 7
    assert config.parameters["model_dir"].string_value == str(source)
    types = model_config_pb2.DataType
    assert [(t.name, types.Name(t.data_type), list(t.dims), t.optional) for t in config.input] == [
        (tensor.name, tensor.data_type, [tensor.dims], True) for tensor in INPUTS
    ]
    assert [(t.name, types.Name(t.data_type), list(t.dims)) for t in config.output] == [
        (tensor.name, tensor.data_type, [tensor.dims]) for tensor in OUTPUTS
    ]


def test_the_folder_holds_the_properties_and_a_door(source: Path, tmp_path: Path) -> None:
    folder = write_model(plan(), source, tmp_path / "models", "m")
    assert (folder / "serving.properties").read_text() == "option.rolling_batch=echo\n"
    assert (folder / "1" / "model.py").read_text() == MODEL_PY
    assert sorted(path.name for path in folder.iterdir()) == [
        "1",
        "config.pbtxt",
        "serving.properties",
    ]


def test_writing_again_replaces_and_in_place_names_no_source(source: Path) -> None:
    for queue_size in (1, 2):
        folder = write_model(plan(queue_size=queue_size), source, source.parent, source.name[:6])
    assert folder != source
    (source.parent / "same").mkdir()
    (source.parent / "same" / "serving.properties").write_text("")
    folder = write_model(plan(), source.parent / "same", source.parent, "same")
    assert not parse((folder / "config.pbtxt").read_text()).parameters


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a b"])
def test_a_name_triton_would_refuse_is_refused(source: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="accepted: letters"):
        write_model(plan(), source, tmp_path, name)


def test_a_folder_that_cannot_be_written_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_model(plan(), source, tmp_path / "file", "m")


def test_the_backend_folder_is_only_the_door(tmp_path: Path) -> None:
    assert (write_backend(tmp_path) / "model.py").read_text() == MODEL_PY


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "é😀", "\x01"])
def test_any_text_survives(text: str) -> None:
    config = parse(render({"name": text, "parameters": []}))
    assert config.name == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_as_convert_writes_them(name: str, tmp_path: Path) -> None:
    example = ROOT / "model_repository" / name
    options = load_options(example, {})
    folder = write_model(make_plan(options, {"PATH": ""}), example, tmp_path, name)
    written = parse((folder / "config.pbtxt").read_text())
    del written.parameters["model_dir"]
    assert parse((example / "config.pbtxt").read_text()) == written
    assert (example / "1" / "model.py").read_text() == MODEL_PY
