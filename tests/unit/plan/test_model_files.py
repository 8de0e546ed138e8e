"""Models that no engine could load are refused by their files, before one is started."""

import json
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.prepare import plan_model
from lmi_backend.printable import GIB
from tests.support.run.places import LORA

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "intermediate_size": 16, "vocab_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
SHAPES = {"model.embed_tokens.weight": [32, 8]} | {
    f"model.layers.{number}.{part}.weight": rows
    for number in range(2)
    for part, rows in (("mlp.up_proj", [16, 8]), ("self_attn.k_proj", [8, 8]))
}
SHARD = "model-00002-of-00002.safetensors"


def tensors(shapes: dict[str, list[int]]) -> bytes:
    """A safetensors file of zeros."""
    table, end = {}, 0
    for name, (rows, columns) in shapes.items():
        begin, end = end, end + 4 * rows * columns
        table[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}
    head = json.dumps(table).encode()
    return struct.pack("<Q", len(head)) + head + bytes(end)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {}}}', "utf-8")
    (folder / "tokenizer_config.json").write_text("{}", "utf-8")
    (folder / "model.safetensors").write_bytes(tensors(SHAPES))
    return folder


def plan(folder: Path, *lines: str, reach: Any = "local", **around: str) -> None:
    written = "\n".join((f"option.model_id={folder}", "option.rolling_batch=vllm", *lines))
    options = resolve_options(parse_properties(written), {}, folder=folder.parent)
    plan_model(options, around, hardware=Hardware(host_memory=8 * GIB), reach=reach)


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def configured(**fields: Any) -> Callable[[Path], None]:
    data = json.dumps(CONFIG | fields).encode()
    return rewritten("config.json", lambda _: data)


def index(folder: Path) -> None:
    names = dict.fromkeys(SHAPES, SHARD)
    text = json.dumps({"metadata": {}, "weight_map": names})
    (folder / "model.safetensors.index.json").write_text(text, "utf-8")


def unreadable(folder: Path) -> None:
    """As a mount without rights shows it; root may read whatever has a mode."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/proc/1/mem/none")


def as_bin(data: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(data)

    return write


def tabled(**fields: Any) -> Callable[[Path], None]:
    """A file that says something else of the 1,024 bytes of its first tensor."""

    def change(data: bytes) -> bytes:
        (length,) = struct.unpack("<Q", data[:8])
        table = json.loads(data[8 : 8 + length])
        table["model.embed_tokens.weight"].update(fields)
        head = json.dumps(table).encode()
        return struct.pack("<Q", len(head)) + head + data[8 + length :]

    return rewritten("model.safetensors", change)


def pipe(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


def linked(target: str, name: str = "model.safetensors") -> Callable[[Path], None]:
    def link(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return link


def weights(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return rewritten("model.safetensors", change)


def tokenizer(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return rewritten("tokenizer.json", change)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text, "utf-8")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"
DEEP = struct.pack("<Q", 99999) + b'{"a":' + b"[" * 99999
NO_TENSORS = struct.pack("<Q", 2) + b"{}"
NO_TABLE = "model.safetensors is not a safetensors file"
SPOILED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no weights": (without("model.safetensors"), "has no weights"),
    "weights cut": (weights(lambda data: data[: len(data) // 2]), r"is cut: \d+ bytes of \d+"),
    "weights are a page": (weights(lambda _: b"<html>" * 99), "is cut, or not a safetensors file"),
    "weights are a pointer": (weights(lambda _: POINTER), "of Git LFS; run `git lfs pull`"),
    "table broken": (weights(lambda data: data.replace(b'"F32"', b'"F32,')), NO_TABLE),
    "table deep": (weights(lambda _: DEEP), NO_TABLE),
    "no tensors": (weights(lambda _: NO_TENSORS), "model.safetensors has no tensors"),
    "negative size": (tabled(shape=[-32, 8]), NO_TABLE),
    "other type": (tabled(dtype="F64"), r"safetensors is broken: F64 \[32, 8\] of model.embed"),
    "overlap": (tabled(data_offsets=[512, 1536]), "model.safetensors is broken"),
    "a pipe": (pipe, "model.safetensors cannot be read: it is not a file"),
    "a circle of links": (linked("model.safetensors"), "cannot be read: Too many levels"),
    "bin cut": (as_bin(b"PK\x03\x04" + bytes(99)), "pytorch_model.bin is cut"),
    "bin is a page": (as_bin(b"<html>"), "pytorch_model.bin is not a file of torch.save"),
    "a shard missing": (index, f"index.json names {SHARD}: not in the folder"),
    "index broken": (written("model.safetensors.index.json", "{"), "index.json is not JSON"),
    "no config": (without("config.json"), "has no config.json"),
    "wrong width": (configured(hidden_size=16), r"embed_tokens.weight has 8, and .*hidden_size=16"),
    "wrong heads": (configured(num_key_value_heads=1), r"k_proj.weight has 8, and .*head_dim=4"),
    "wrong middle": (configured(intermediate_size=24), r"up_proj.weight has 16, and .*_size=24"),
    "width is a text": (configured(hidden_size="8"), "config.json has hidden_size='8'"),
    "wrong vocabulary": (configured(vocab_size=64), r"weight has 32, and .*vocab_size=64"),
    "layers missing": (configured(num_hidden_layers=4), "of 2 layers, and .*num_hidden_layers=4"),
    "no tokenizer": (without("tokenizer.json"), "has no tokenizer"),
    "tokenizer cut": (tokenizer(lambda data: data[:5]), "tokenizer.json is not JSON"),
    "no vocabulary": (tokenizer(lambda _: b'{"model": {}}'), 'has no "model" with a "vocab"'),
    "tokenizer of another kind": (
        tokenizer(lambda _: b'{"model": {"type": "X", "vocab": {}}}'),
        "tokenizer.json: model type 'X'",
    ),
    "tokenizer with a mark": (tokenizer(lambda data: b"\xef\xbb\xbf" + data), "is not JSON"),
    "tokenizer's config cut": (written("tokenizer_config.json", '{"a'), "config.json is not JSON"),
    "sampling is a text": (
        written("generation_config.json", '{"top_p": "x"}'),
        "generation_config.json has top_p='x'; accepted: a number",
    ),
    "unreadable": (unreadable, "tokenizer.json cannot be read"),
}


@pytest.mark.parametrize("engine", ["vllm", "auto"])
def test_a_whole_model_is_planned(model: Path, engine: str) -> None:
    plan(model, f"option.rolling_batch={engine}", reach="model")


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_model_is_refused_by_its_file(model: Path, name: str) -> None:
    spoil, problem = SPOILED[name]
    spoil(model)
    with pytest.raises(PlanError) as refused:
        plan(model)
    assert re.search(problem, str(refused.value))
    assert str(model) in str(refused.value)


def test_config_json_alone_is_planned_and_not_started(model: Path) -> None:
    for name in os.listdir(model):
        if name != "config.json":
            os.unlink(model / name)
    plan(model)
    with pytest.raises(PlanError, match="has no weights"):
        plan(model, reach="model")


def test_what_an_option_has_in_place_of_a_file_may_be_missing(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    plan(model, "option.tokenizer=organisation/other")
    (model / "model.safetensors").unlink()
    plan(model, "option.load_format=dummy", reach="model")


def test_an_adapter_may_have_the_tokenizer_of_its_model() -> None:
    plan(LORA, "option.rolling_batch=disable")


def test_a_cache_larger_than_the_machine_is_refused(model: Path) -> None:
    with pytest.raises(PlanError, match=r"400.0 GiB.*8.0 GiB"):
        plan(model, VLLM_CPU_KVCACHE_SPACE="400")
    plan(model, VLLM_CPU_KVCACHE_SPACE="4")
