"""Models that no engine could load are refused by their files, before one is started."""

import json
import math
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.prepare import plan_model
from lmi_backend.printable import GIB
from tests.support.packages.installed_engine import script
from tests.support.records.plans import options_of
from tests.support.run.places import LORA

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "intermediate_size": 16, "vocab_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
PARTS = {f"self_attn.{part}_proj": [8, 8] for part in "qkvo"} | {
    "mlp.gate_proj": [16, 8], "mlp.up_proj": [16, 8], "mlp.down_proj": [8, 16],
    "input_layernorm": [8], "post_attention_layernorm": [8],
}  # fmt: skip
SHAPES = {f"{name}.weight": [32, 8] for name in ("model.embed_tokens", "lm_head")} | {
    f"model.{name}.weight": shape
    for name, shape in (
        ("norm", [8]),
        *((f"layers.{layer}.{part}", shape) for layer in range(2) for part, shape in PARTS.items()),
    )
}
SHARD = "model-00002-of-00002.safetensors"


def tensors(shapes: dict[str, list[int]]) -> bytes:
    """A safetensors file of zeros."""
    table, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
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


def plan(folder: Path, *lines: str, reach: Any = "local", **around: str) -> EnginePlan:
    written = "\n".join((f"option.model_id={folder}", "option.rolling_batch=vllm", *lines))
    options = options_of(written, folder=folder.parent)
    return plan_model(options, around, hardware=Hardware(host_memory=8 * GIB), reach=reach)


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def configured(**fields: Any) -> Callable[[Path], None]:
    data = json.dumps(CONFIG | fields).encode()
    return rewritten("config.json", lambda _: data)


def index(folder: Path) -> None:
    names = dict.fromkeys(SHAPES, SHARD)
    text = json.dumps({"metadata": {}, "weight_map": names})
    (folder / "model.safetensors.index.json").write_text(text, "utf-8")


def shaped(**changes: list[int] | None) -> Callable[[Path], None]:
    """Other tensors, each named by a part of its name; None for one that is not there."""
    shapes = {
        name: shape
        for name, old in SHAPES.items()
        if (shape := next((new for part, new in changes.items() if part in name), old))
    }
    return rewritten("model.safetensors", lambda _: tensors(shapes))


def one_shard(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / SHARD)


def other_shard(folder: Path) -> None:
    """An index that leaves out the file that the model needs."""
    one = {"model.norm.weight": SHAPES["model.norm.weight"]}
    (folder / SHARD).write_bytes(tensors(one))
    index(folder)


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
    "bin of other data": (as_bin(b"PK\x05\x06" + bytes(18)), "pytorch_model.bin is not a file of"),
    "bin is a page": (as_bin(b"<html>"), "pytorch_model.bin is not a file of torch.save"),
    "a shard missing": (index, f"index.json names {SHARD}: not in the folder"),
    "index broken": (written("model.safetensors.index.json", "{"), "index.json is not JSON"),
    "no config": (without("config.json"), "has no config.json"),
    "wrong width": (
        configured(hidden_size=16),
        r"embed_tokens.weight is \[32, 8\], and .*hidden_size=16",
    ),
    "wrong heads": (
        configured(num_key_value_heads=1),
        r"k_proj.weight is \[8, 8\], and .*head_dim=4",
    ),
    "wrong middle": (
        configured(intermediate_size=24),
        r"gate_proj.weight is \[16, 8\], .*_size=24",
    ),
    "width is a text": (configured(hidden_size="8"), "config.json has hidden_size='8'"),
    "wrong vocabulary": (configured(vocab_size=64), r"weight is \[32, 8\], and .*vocab_size=64"),
    "wrong norm": (shaped(norm=[2, 4]), r"norm.weight is \[2, 4\], and .*hidden_size=8"),
    "output turned": (shaped(down_proj=[16, 8]), r"down_proj.weight is \[16, 8\], and .*_size=16"),
    "no head": (shaped(lm_head=None), "no lm_head.weight among them"),
    "a tensor missing": (shaped(o_proj=None), r"no model.layers.0.self_attn.o_proj.weight among"),
    "a shard and no index": (one_shard, r"has 1 of the 2 files model-\*-of-00002.safetensors"),
    "an index of other files": (other_shard, r"no model.embed_tokens.weight among them"),
    "no width": (configured(hidden_size=None), "config.json has no hidden_size"),
    "no heads": (configured(num_attention_heads=0), "config.json has num_attention_heads=0"),
    "an unknown type": (configured(dtype="float33"), "config.json has dtype='float33'"),
    "classes are a text": (configured(architectures="L"), "config.json has architectures='L'"),
    "no kind of model": (configured(model_type=None), "config.json has no model_type"),
    "layers too many": (configured(num_hidden_layers=1), "of 2 layers, and .*num_hidden_layers=1"),
    "layers missing": (configured(num_hidden_layers=4), "of 2 layers, and .*num_hidden_layers=4"),
    "no tokenizer": (without("tokenizer.json"), "has no tokenizer"),
    "tokenizer cut": (tokenizer(lambda data: data[:5]), "tokenizer.json is not JSON"),
    "no vocabulary": (tokenizer(lambda _: b'{"model": {}}'), 'has no "model" with a "vocab"'),
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


def test_safetensors_alone_may_be_fetched(model: Path) -> None:
    whole = {"weight_map": {"model.norm.weight": "pytorch_model-00001-of-00002.bin"}}
    (model / "pytorch_model.bin.index.json").write_text(json.dumps(whole), "utf-8")
    (model / "pytorch_model-00002-of-00002.bin").write_bytes(b"")
    plan(model)


def test_heads_may_be_shared_with_the_embedding(model: Path) -> None:
    shaped(lm_head=None)(model)
    configured(tie_word_embeddings=True)(model)
    plan(model)


def test_the_engines_library_judges_the_tokenizer(model: Path, tmp_path: Path) -> None:
    python = script(tmp_path / "python", "echo 'Exception: no such merge' >&2\nexit 1")
    with pytest.raises(PlanError, match=r"tokenizer.json.*no such merge"):
        plan(model, f"option.pythonExecutable={python}")


def test_a_tokenizer_elsewhere_is_read(model: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="other cannot be read: No such file"):
        plan(model, f"option.tokenizer={tmp_path}/other")
    shutil.copytree(model, tmp_path / "other")
    plan(model, f"option.tokenizer={tmp_path}/other")


def test_the_weights_of_a_draft_model_are_read(model: Path, tmp_path: Path) -> None:
    draft = json.dumps({"model": f"{tmp_path}/draft", "num_speculative_tokens": 2})
    shutil.copytree(model, tmp_path / "draft")
    plan(model, f"option.speculative_config={draft}")
    os.truncate(tmp_path / "draft" / "model.safetensors", 999)
    with pytest.raises(PlanError, match=r"draft/model.safetensors is cut"):
        plan(model, f"option.speculative_config={draft}")


def test_an_adapter_that_is_cut_is_noted(model: Path, tmp_path: Path) -> None:
    shutil.copytree(LORA, tmp_path / "adapters" / "cut")
    os.truncate(tmp_path / "adapters" / "cut" / "adapter_model.safetensors", 999)
    notes = plan(model, "option.enable_lora=true").notes
    assert [note for note in notes if "adapter cut will fail: adapter_model.safetensors" in note]


def test_an_adapter_may_have_the_tokenizer_of_its_model() -> None:
    plan(LORA, "option.rolling_batch=disable")


def test_a_cache_larger_than_the_machine_is_refused(model: Path) -> None:
    with pytest.raises(PlanError, match=r"400.0 GiB.*8.0 GiB"):
        plan(model, VLLM_CPU_KVCACHE_SPACE="400")
    plan(model, VLLM_CPU_KVCACHE_SPACE="4")
