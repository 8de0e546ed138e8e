"""What changes a model's digest, and what does not."""

import os
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.serving.identity import adapter_digest, model_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text('{"a": 1}')
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "serving.properties").write_text("option.max_num_seqs=4")
    return tmp_path


def digest(folder: Path, **arguments: Any) -> str:
    return model_digest(EngineConfig(model=str(folder), arguments=arguments), {})


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b"{ }"),
        ("tokenizer.json", b'{"b": 1}'),
        ("added_tokens.json", b"{}"),
        ("tokenizer.model", b"words"),
        ("chat_template.jinja", b"{{ 1 }}"),
        ("model.safetensors", b"x" * 101),
        ("more.safetensors", b""),
    ],
)
def test_other_files_are_another_model(folder: Path, name: str, data: bytes) -> None:
    before = digest(folder)
    (folder / name).write_bytes(data)
    assert digest(folder) != before


def test_weights_written_anew_are_another_model_and_the_same_files_are_the_same(
    folder: Path,
) -> None:
    before = digest(folder)
    assert digest(folder) == before
    # The same files may have been fetched again.
    for name in ("config.json", "model.safetensors"):
        os.utime(folder / name, ns=(1, 1))
    (folder / "serving.properties").write_text("option.max_num_seqs=8")
    assert digest(folder, max_num_seqs=8) == before
    (folder / "model.safetensors").write_bytes(b"y" * 100)
    assert digest(folder) != before


@pytest.mark.parametrize("name", ["revision", "tokenizer", "chat_template", "quantization"])
def test_what_chooses_what_ids_mean_counts(folder: Path, name: str) -> None:
    assert digest(folder, **{name: "b"}) != digest(folder, **{name: "c"}) != digest(folder)


def test_a_tokenizer_of_its_own_counts_by_its_files(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "vocab.txt").write_text("a")
    before = digest(folder, tokenizer=str(other))
    (other / "vocab.txt").write_text("b")
    assert digest(folder, tokenizer=str(other)) != before


def test_a_chat_template_of_its_own_counts_by_what_is_in_it(folder: Path) -> None:
    template = folder / "other.tmpl"
    config = EngineConfig(model=str(folder), front_end={"chat_template": str(template)})
    seen = set()
    for text in ("a", "b", "a"):
        template.write_text(text)
        seen.add(model_digest(config, {}))
    assert len(seen) == 2


def test_a_pipe_is_not_read(folder: Path) -> None:
    os.mkfifo(folder / "vocab.txt")
    assert digest(folder)


@pytest.mark.parametrize("name", ["main", "v1"])
def test_a_model_of_the_hub_is_told_by_what_is_in_the_cache(tmp_path: Path, name: str) -> None:
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    refs = tmp_path / "models--org--m" / "refs"
    refs.mkdir(parents=True)
    for commit in ("a" * 40, "b" * 40):
        snapshot = tmp_path / "models--org--m" / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(commit)
    arguments = {} if name == "main" else {"revision": name}
    config = EngineConfig(model="org/m", arguments=arguments)
    seen = set()
    for commit in ("a" * 40, "b" * 40, "a" * 40):
        (refs / name).write_text(commit)
        seen.add(model_digest(config, environment))
    assert len(seen) == 2


@pytest.mark.parametrize("model", ["", "org/none", "a\0b", "../x", "s3://bucket/m"])
def test_a_model_without_files_here_has_a_digest(model: str, tmp_path: Path) -> None:
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    assert model_digest(EngineConfig(model=model), environment)


def test_an_adapter_is_told_by_its_files(folder: Path) -> None:
    before = adapter_digest(str(folder))
    assert adapter_digest(str(folder)) == before
    (folder / "config.json").write_text("{ }")
    assert adapter_digest(str(folder)) != before
    assert adapter_digest("/nowhere") != adapter_digest("/nowhere/else")


@pytest.mark.parametrize("place", [0, 1 << 20, (64 << 20) + 5, (128 << 20) - 1])
def test_another_tensor_of_large_weights_is_seen_wherever_it_is(folder: Path, place: int) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, 128 << 20)
    before = digest(folder)
    with path.open("r+b") as file:
        file.seek(max(place - (256 << 10), 0))
        file.write(b"y" * (256 << 10))
    assert digest(folder) != before


@pytest.mark.parametrize("place", [0, (64 << 10) - 1, -(64 << 10), -1])
@pytest.mark.parametrize("size", [1 << 20, (64 << 10) + 1, 64 << 10])
def test_each_byte_of_a_files_ends_counts(folder: Path, place: int, size: int) -> None:
    path = folder / "model.safetensors"
    data = bytearray(size)
    path.write_bytes(data)
    before = digest(folder)
    data[place] = 1
    path.write_bytes(data)
    assert digest(folder) != before
