"""What the files of a model say of themselves, before an engine reads them for minutes."""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from lmi_backend.errors import PlanError
from lmi_backend.files import read_bounded
from lmi_backend.printable import MIB

_CONFIG: Final = "config.json"
_ADAPTER: Final = "adapter_config.json"
_CONFIGS: Final = (_CONFIG, "params.json", _ADAPTER)
"""Of Transformers, of Mistral, and of a PEFT adapter that names its model."""
_INDICES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SAFE: Final = ".safetensors"
_PICKLES: Final = (".bin", ".pt", ".pth")
_GGUF: Final = ".gguf"
_WEIGHTS: Final = (_SAFE, *_PICKLES, _GGUF, ".npz", ".tensors")
_TOKENIZERS: Final = re.compile(
    r"tokenizer\.json|tokenizer\.model.*|tekken\.json|vocab\.(json|txt)|.*\.tiktoken|.*\.spm"
    r"|sp(iece|m)\.model|sentencepiece.*\.model|tokenization_\w+\.py|.*\.gguf"
)
_READ: Final = (
    "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json",
)  # fmt: skip
_GENERATION: Final = "generation_config.json"
_SAMPLING: Final = (
    "max_new_tokens", "min_p", "repetition_penalty", "temperature", "top_k", "top_p",
)  # fmt: skip
"""Fields of it that are defaults of requests."""
_TOKENIZER: Final = "tokenizer.json"
_TOKENIZER_MODELS: Final = (None, "BPE", "Unigram", "WordLevel", "WordPiece")
_LONGEST: Final = 256 * MIB
"""Bytes of a file of JSON; those of large vocabularies have 33 million."""
_LENGTH: Final = 8
"""Bytes of a safetensors file that say how long its table is."""
_TORCH: Final = (b"PK", b"\x80\x02")
"""Beginnings of what `torch.save` writes, now and before."""
_POINTER: Final = b"version https://git-lfs"
_EMBEDDING: Final = "model.embed_tokens.weight"
_PLAIN: Final = ("F32", "F16", "BF16")
"""Types of tensors that nothing is packed into."""
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(?:\w+\.(\w+)\.weight$)?")
_WHOLE: Final = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",
)  # fmt: skip
"""Fields of config.json that are whole numbers, or are missing, or have a list for each layer."""
_ALIKE: Final = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Architectures all of whose layers have the shapes that config.json says."""
_ROWS: Final = {
    _EMBEDDING: ("vocab_size",),
    "up_proj": ("intermediate_size",),
    "q_proj": ("num_attention_heads", "head_dim"),
    "k_proj": ("num_key_value_heads", "head_dim"),
}
"""Fields of config.json whose product is the number of a tensor's rows."""


class StoredTensor(NamedTuple):
    """A tensor of a safetensors file, by the file's table."""

    path: Path
    dtype: str
    shape: list[int]
    begin: int
    end: int

    @property
    def num_bytes(self) -> float:
        """Bytes that its shape needs; a type is named by its bits, such as BF16 or F8_E4M3."""
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * (int(bits[0]) if bits else 8) / 8


def check_model_files(folder: Path, *, has_tokenizer: bool, must_be_whole: bool) -> None:
    """Refuse a folder whose files no engine could load; a few kilobytes of each large one are read.

    Args:
        has_tokenizer: whether the engine takes the tokenizer from it.
        must_be_whole: refuse config.json alone, which is enough for a plan, and an empty folder.

    Raises:
        PlanError: a file is missing, is cut, cannot be read or contradicts config.json.
    """
    names = sorted(os.listdir(folder))
    has_weights = any(name.endswith(_WEIGHTS) for name in names)
    is_tokenized = any(_TOKENIZERS.fullmatch(name) for name in names)
    if not (has_weights or is_tokenized or must_be_whole):
        return
    if not any(name in _CONFIGS or name.endswith(_GGUF) for name in names):
        raise PlanError(f"{folder} has no {_CONFIG}")
    tensors = _tensors(folder, names)
    if not has_weights:
        raise PlanError(f"{folder} has no weights, such as model.safetensors")
    for name in filter(names.__contains__, _READ):
        _read_json(folder / name)
    if _GENERATION in names:
        defaults = _read_json(folder / _GENERATION)
        for field in _SAMPLING:
            if not isinstance(defaults.get(field), (int, float, type(None))):
                given = f"{field}={defaults[field]!r}"
                raise PlanError(f"{folder / _GENERATION} has {given}; accepted: a number")
    if _CONFIG in names:
        _compare(folder / _CONFIG, tensors)
    # The model that an adapter names may have its tokenizer.
    if has_tokenizer and (is_tokenized or _ADAPTER not in names):
        _check_tokenizer(folder, names, is_there=is_tokenized)


def _check_tokenizer(folder: Path, names: list[str], *, is_there: bool) -> None:
    if not is_there:
        accepted = "tokenizer.json, tokenizer.model, vocab.json or tekken.json"
        problem = f"{folder} has no tokenizer; accepted: {accepted}, or option.tokenizer"
        raise PlanError(problem)
    if _TOKENIZER in names:
        model = _read_json(folder / _TOKENIZER).get("model")
        if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
            raise PlanError(f'{folder / _TOKENIZER} has no "model" with a "vocab"')
        if (kind := model.get("type")) not in _TOKENIZER_MODELS:
            accepted = ", ".join(map(str, _TOKENIZER_MODELS[1:]))
            raise PlanError(f"{folder / _TOKENIZER}: model type {kind!r}; accepted: {accepted}")
    for name in filter(_TOKENIZERS.fullmatch, names):
        _begin(folder / name, 1)


def _tensors(folder: Path, names: list[str]) -> dict[str, StoredTensor]:
    """Return the tensors of all safetensors files; look that each weights file is whole."""
    for index in filter(names.__contains__, _INDICES):
        files = _read_json(folder / index).get("weight_map")
        if not isinstance(files, dict) or not files:
            raise PlanError(f'{folder / index} has no "weight_map"')
        if lacking := sorted({str(each) for each in files.values()} - {*names}):
            missing = f"{lacking[0]}" + f" and {len(lacking) - 1} more" * (len(lacking) > 1)
            raise PlanError(f"{folder / index} names {missing}: not in the folder")
    tensors: dict[str, StoredTensor] = {}
    problem = ""
    for name in names:
        if name.endswith(_SAFE):
            tensors.update(_table(folder / name))
            problem = f"{folder / name} has no tensors"
    if problem and not tensors:
        raise PlanError(problem)
    # An engine that finds safetensors reads no other files.
    for name in () if tensors else names:
        if not name.endswith(_WEIGHTS):
            continue
        begin = _begin(folder / name, 4)
        if begin[:2] == b"PK" and not zipfile.is_zipfile(folder / name):
            raise PlanError(f"{folder / name} is cut: its end is missing")
        if name.endswith(_PICKLES) and not begin.startswith(_TORCH):
            raise PlanError(f"{folder / name} is not a file of torch.save")
        if name.endswith(_GGUF) and begin[:4] != b"GGUF":
            raise PlanError(f"{folder / name} is not a GGUF file")
    return tensors


def _table(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file, by its head.

    Raises:
        PlanError: the file is cut, or is not a safetensors file.
    """
    _begin(path, _LENGTH)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH), "little")
        if length > size:
            raise PlanError(f"{path} is cut, or not a safetensors file: it has {size} bytes")
        try:
            table: dict[str, Any] = json.loads(file.read(length).decode())
            table.pop("__metadata__", None)
            rows = {name: _tensor(path, row) for name, row in table.items()}
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            problem = f"{path} is not a safetensors file: its table cannot be read ({error})"
            raise PlanError(problem) from error
    end = 0
    for name, row in sorted(rows.items(), key=lambda item: item[1][3:]):
        if row.begin != end or row.end - end != row.num_bytes:
            raise PlanError(f"{path} is broken: {row.dtype} {row.shape} of {name} is not its data")
        end = row.end
    whole = _LENGTH + length + end
    if size != whole:
        raise PlanError(f"{path} is {'cut' if size < whole else 'broken'}: {size} bytes of {whole}")
    return rows


def _tensor(path: Path, row: Mapping[str, Any]) -> StoredTensor:
    numbers = (*row["shape"], *row["data_offsets"])
    if not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError(f"{numbers}: not whole numbers")
    return StoredTensor(path, str(row["dtype"]), row["shape"], *row["data_offsets"])


def _compare(config: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Compare shapes with config.json, for the names that decoders of text have."""
    written = _read_json(config)
    text = written.get("text_config")
    fields = text if isinstance(text, dict) else written
    for field in _WHOLE:
        value = fields.get(field)
        if isinstance(value, (str, float)) or (isinstance(value, int) and value < 0):
            raise PlanError(f"{config} has {field}={value!r}; accepted: a whole number")
    layers = {int(match[1]) for match in map(_LAYER.match, tensors) if match}
    expected = fields.get("num_hidden_layers")
    if layers and isinstance(expected, int) and max(layers) + 1 < expected:
        problem = f"has the weights of {max(layers) + 1} layers"
        raise PlanError(f"{config.parent} {problem}, and {config} has num_hidden_layers={expected}")
    heads, width = fields.get("num_attention_heads"), fields.get("hidden_size")
    if isinstance(heads, int) and isinstance(width, int) and heads:
        fields = {"head_dim": width // heads, **fields}
    named = written.get("architectures")
    is_alike = isinstance(named, list) and any(each in _ALIKE for each in named)
    for name, tensor in tensors.items():
        match = _LAYER.match(name)
        part = match[2] if match and is_alike else name
        if part in _ROWS and tensor.dtype in _PLAIN and len(tensor.shape) > 1:
            _compare_shape(config, fields, tensor, name, _ROWS[part])


def _compare_shape(
    config: Path, fields: Mapping[str, Any], tensor: StoredTensor, name: str, rows: tuple[str, ...]
) -> None:
    for names, number in zip((rows, ("hidden_size",)), tensor.shape, strict=False):
        values = [fields.get(each) for each in names]
        expected = math.prod(each for each in values if isinstance(each, int))
        if expected != number and all(isinstance(each, int) for each in values):
            given = ", ".join(
                f"{field}={value}" for field, value in zip(names, values, strict=True)
            )
            raise PlanError(f"{tensor.path}: {name} has {number}, and {config} has {given}")


def _read_json(path: Path) -> dict[str, Any]:
    """Return an object of a file.

    Raises:
        PlanError: the file cannot be read, or is none.
    """
    _begin(path, 1)
    try:
        # Engines read UTF-8 without a byte order mark; `json` reads more from bytes.
        value = json.loads(read_bounded(path, _LONGEST).decode())
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PlanError(f"{path} is not a JSON object")
    return value


def _begin(path: Path, least: int) -> bytes:
    """Return the first bytes of a file.

    Raises:
        PlanError: it cannot be read, is too short, or is what Git LFS has in its place.
    """
    if path.exists() and not path.is_file():
        # A pipe is not waited for.
        raise PlanError(f"{path} cannot be read: it is not a file")
    try:
        with path.open("rb") as file:
            begin = file.read(max(least, len(_POINTER)))
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    if begin == _POINTER:
        raise PlanError(f"{path} is a pointer of Git LFS; run `git lfs pull` in its repository")
    if len(begin) < least:
        raise PlanError(f"{path} is cut: it has {len(begin)} bytes")
    return begin
