"""Every written config.pbtxt is read by Triton's own proto, so a misspelt field cannot pass."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from lmi_backend import __version__
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import load_options
from lmi_backend.repository.files import Record, digest
from lmi_backend.repository.tensors import INPUTS, OUTPUTS
from lmi_backend.repository.variants import MAIN, VARIANTS, Alias, Variant
from lmi_backend.repository.writer import (
    MODEL_PY,
    render_config,
    write_alias_model,
    write_backend,
    write_model,
)
from tests.support.run.places import ROOT

LENGTH = "request_output_len"
CONFIG = ROOT / "tests" / "data" / "config.pbtxt"
EXAMPLES = sorted(path.name for path in (ROOT / "model_repository").iterdir())


def parse(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def config_of(folder: Path) -> Any:
    return parse((folder / "config.pbtxt").read_text(encoding="utf-8"))


def write(source: Path, repository: Path, name: str, **settings: bool) -> Path:
    write_model(source, repository, name, load_options(source, {}), **settings)
    return repository / name


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source é"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n")
    return folder


def test_the_written_configuration_is_what_triton_reads(source: Path, tmp_path: Path) -> None:
    folder = write(source, tmp_path / "models", "m-1.x")
    config = config_of(folder)
    assert (config.name, config.backend, config.max_batch_size) == ("m-1.x", "python", 0)
    assert config.model_transaction_policy.decoupled
    (group,) = config.instance_group
    assert (group.kind, group.count) == (model_config_pb2.ModelInstanceGroup.KIND_MODEL, 1)
    # Triton's batcher would delay a burst of requests.
    assert not config.HasField("dynamic_batching")
    text = (source / "serving.properties").read_text()
    assert Record.read(folder) == Record(str(source), digest(text))
    assert not config.parameters
    types = model_config_pb2.DataType
    assert [(t.name, types.Name(t.data_type), list(t.dims), t.optional) for t in config.input] == [
        (tensor.name, tensor.data_type, tensor.shape, True) for tensor in INPUTS
    ]
    assert [(t.name, types.Name(t.data_type), list(t.dims)) for t in config.output] == [
        (tensor.name, tensor.data_type, tensor.shape) for tensor in OUTPUTS
    ]


def test_the_config_of_a_model_is_written_as_reviewed() -> None:
    written = render_config("MODEL").replace(__version__, "<VERSION>")
    # The digest would only say once more that something differs.
    made = "".join(line for line in written.splitlines(True) if "# digest:" not in line)
    if os.environ.get("UPDATE_GOLDEN"):
        CONFIG.write_text(made, encoding="utf-8")
    assert made == CONFIG.read_text(encoding="utf-8")
    parse(made)


def test_the_folder_holds_the_properties_and_an_entry_file(source: Path, tmp_path: Path) -> None:
    folder = write(source, tmp_path / "models", "m")
    assert (folder / "serving.properties").read_text() == "option.rolling_batch=echo\n"
    assert (folder / "1" / "model.py").read_text() == MODEL_PY
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["1", "config.pbtxt", "serving.properties"]


def test_writing_again_replaces_what_was_written_and_says_so(source: Path, tmp_path: Path) -> None:
    folder = write(source, tmp_path / "models", "m")
    (source / "serving.properties").write_text("option.rolling_batch=echo\noption.x=1\n")
    changes = write_model(source, tmp_path / "models", "m", load_options(source, {}))
    assert changes == ["serving.properties"]
    assert (folder / "serving.properties").read_text().endswith("option.x=1\n")
    assert not list(folder.rglob("*.new"))
    assert write_model(source, tmp_path / "models", "m", load_options(source, {})) == []


@pytest.mark.parametrize("file", ["config.pbtxt", "serving.properties", "1/model.py"])
def test_edits_by_hand_are_kept_unless_forced(file: str, source: Path, tmp_path: Path) -> None:
    folder = write(source, tmp_path, "m")
    path = folder / file
    edited = "# mine\n" if file.endswith("py") else path.read_text() + "# mine\n"
    path.write_text(edited)
    with pytest.raises(ConfigurationError, match=f"{file}: was edited by hand.*--force"):
        write(source, tmp_path, "m")
    assert path.read_text() == edited
    write(source, tmp_path, "m", force=True)
    assert path.read_text() != edited


def test_a_file_of_someone_else_is_not_written_over(source: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text('name: "m"\n')
    with pytest.raises(ConfigurationError, match="or is not from lmi-backend"):
        write(source, tmp_path, "m")
    assert not (tmp_path / "m" / "1").exists()


def test_secrets_are_not_recorded(source: Path, tmp_path: Path) -> None:
    options = load_options(source, {"OPTION_HF_TOKEN": "hf_secret", "OPTION_ENV": "X=hf_secret"})
    write_model(source, tmp_path, "m", options)
    folder = tmp_path / "m"
    for path in folder.rglob("*"):
        assert path.is_dir() or b"hf_secret" not in path.read_bytes(), path


def test_who_may_not_read_the_original_reads_neither_its_copy_nor_the_record(
    source: Path, tmp_path: Path
) -> None:
    original = source / "serving.properties"
    for mode in (0o644, 0o600, 0o640):
        original.chmod(mode)
        folder = write(source, tmp_path, "m")
        # A model that was converted by one user is often served by another.
        assert (folder / "1" / "record.json").stat().st_mode & 0o777 == mode
        assert (folder / "serving.properties").stat().st_mode & 0o777 == mode
        # A copy of the repository may have opened it; the next conversion closes it.
        (folder / "1" / "record.json").chmod(0o666)


def test_a_model_written_in_place_names_no_source(source: Path) -> None:
    place = source.rename(source.with_name("here"))
    before = (place / "serving.properties").read_text()
    assert write(place, place.parent, "here") == place
    assert Record.read(place) == Record("", digest(before))
    assert (place / "serving.properties").read_text() == before


def test_a_folder_without_properties_gets_none(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    folder = write(tmp_path / "weights", tmp_path / "models", "m")
    assert not (folder / "serving.properties").exists()


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a b"])
def test_a_name_triton_would_refuse_is_refused(source: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="accepted: letters"):
        write(source, tmp_path, name)


def test_a_folder_that_cannot_be_written_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write(source, tmp_path / "file", "m")


def test_the_backend_folder_is_only_the_entry_file(tmp_path: Path) -> None:
    for _ in range(2):
        folder = write_backend(tmp_path)
    assert folder == tmp_path / "lmi"
    assert [path.name for path in folder.iterdir()] == ["model.py"]
    assert (folder / "model.py").read_text() == MODEL_PY
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_backend(tmp_path / "none")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_as_convert_writes_them(name: str, tmp_path: Path) -> None:
    example = ROOT / "model_repository" / name
    folder = write(example, tmp_path, name)
    text = (example / "serving.properties").read_text()
    assert Record.read(folder) == Record(str(example), digest(text))
    assert Record.read(example) == Record("", digest(text))
    assert config_of(example) == config_of(folder)
    assert (example / "1" / "model.py").read_text() == MODEL_PY


@pytest.mark.parametrize("entry", VARIANTS.values(), ids=list(VARIANTS))
def test_a_door_is_what_triton_reads(source: Path, tmp_path: Path, entry: Variant) -> None:
    if entry is MAIN:
        return
    write_alias_model(tmp_path, "m", Alias(entry), load_options(source, {}))
    folder = tmp_path / f"m_{entry.clients}"
    config = config_of(folder)
    assert config.name == folder.name
    assert config.model_transaction_policy.decoupled is entry.is_decoupled
    assert config.max_batch_size == entry.max_batch_size
    assert config.parameters["shares"].string_value == "m"
    assert config.parameters["clients"].string_value == entry.clients
    assert [(t.name, list(t.dims)) for t in config.input] == [
        (tensor.name, tensor.shape) for tensor in entry.inputs
    ]
    # Once more changes nothing, and an edit by hand is kept.
    assert write_alias_model(tmp_path, "m", Alias(entry), load_options(source, {})) == []
    with (folder / "config.pbtxt").open("a", encoding="utf-8") as file:
        file.write("# mine\nversion_policy: { latest: { num_versions: 1 } }\n")
    with pytest.raises(ConfigurationError, match="edited by hand"):
        write_alias_model(tmp_path, "m", Alias(entry), load_options(source, {}))


def test_a_model_called_ensemble_has_the_length_with_which_its_clients_stop_requests(
    source: Path, tmp_path: Path
) -> None:
    types = []
    for name in ("ensemble", "tensorrt_llm"):
        alias = Alias(VARIANTS["trtllm"], name)
        write_alias_model(tmp_path, "m", alias, load_options(source, {}))
        inputs = config_of(tmp_path / name).input
        types += [tensor.data_type for tensor in inputs if tensor.name == LENGTH]
    assert types == [model_config_pb2.TYPE_UINT32, model_config_pb2.TYPE_INT32]


def test_adapters_are_written_for_tritons_openai_front_end(source: Path, tmp_path: Path) -> None:
    (source / "adapters" / "french").mkdir(parents=True)
    (source / "adapters" / "french" / "adapter_config.json").write_text("{}")
    with (source / "serving.properties").open("a") as file:
        file.write("option.enable_lora=true\noption.rolling_batch=vllm\n")
    folder = write(source, tmp_path / "models", "m")
    adapters = json.loads((folder / "1" / "multi_lora.json").read_text())
    assert adapters == {"french": str(source / "adapters" / "french")}
    assert json.loads((folder / "1" / "model.json").read_text()) == {"enable_lora": "true"}
    write(source, tmp_path / "models", "m")


def test_a_record_that_cannot_be_read_says_whose_it_must_be(source: Path, tmp_path: Path) -> None:
    folder = write(source, tmp_path, "m")
    (folder / "1" / "record.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"record.json: is not a record .* convert again"):
        Record.read(folder)
    # Convert does not need it.
    write(source, tmp_path, "m")
    (folder / "1" / "record.json").unlink()
    (folder / "1" / "record.json").mkdir()
    with pytest.raises(ConfigurationError, match="accepted: a file of the server's user"):
        Record.read(folder)
