"""What the files of a model say of themselves, before an engine reads them for minutes."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from lmi_backend.errors import PlanError
from lmi_backend.files import read_bounded
from lmi_backend.printable import MIB

_CONFIG: Final = "config.json"
_INDICES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".tensors")
_TOKENIZERS: Final = re.compile(
    r"tokenizer\.json|tokenizer\.model.*|tekken\.json|vocab\.(json|txt)|.*\.tiktoken|.*\.spm"
    r"|sp(iece|m)\.model|sentencepiece.*\.model|tokenization_\w+\.py|.*\.gguf"
)
_READ: Final = ("tokenizer_config.json", "generation_config.json", "special_tokens_map.json")
_TOKENIZER: Final = "tokenizer.json"
_LONGEST: Final = 256 * MIB
"""Bytes of a file of JSON; those of large vocabularies have 33 million."""
_LENGTH: Final = 8
"""Bytes of a safetensors file that say how long its table is."""
_POINTER: Final = b"version https://git-lfs"
_EMBEDDING: Final = "model.embed_tokens.weight"
_PLAIN: Final = ("F32", "F16", "BF16")
"""Types of tensors that nothing is packed into."""
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.")


class StoredTensor(NamedTuple):
    """A tensor of a safetensors file, by the file's table."""

    file: str
    dtype: str
    shape: list[int]


def check_model_files(folder: Path, *, has_tokenizer: bool, must_be_whole: bool) -> None:
    """Refuse a folder whose files no engine could load; a few kilobytes of each large one are read.

    Args:
        folder: a model's, with config.json.
        has_tokenizer: whether the engine takes the tokenizer from it.
        must_be_whole: refuse config.json alone, which is enough for a plan.

    Raises:
        PlanError: a file is missing, is cut, cannot be read or contradicts config.json.
    """
    names = sorted(os.listdir(folder))
    has_weights = any(name.endswith(_WEIGHTS) for name in names)
    is_tokenized = any(_TOKENIZERS.fullmatch(name) for name in names)
    if not (has_weights or is_tokenized or must_be_whole):
        return
    tensors = _tensors(folder, names)
    if not has_weights:
        raise PlanError(f"{folder} has no weights, such as model.safetensors")
    for name in filter(names.__contains__, _READ):
        _read_json(folder / name)
    _compare(folder / _CONFIG, tensors)
    if has_tokenizer:
        _check_tokenizer(folder, names, is_there=is_tokenized)


def _check_tokenizer(folder: Path, names: list[str], *, is_there: bool) -> None:
    if not is_there:
        accepted = "tokenizer.json, tokenizer.model, vocab.json or tekken.json"
        problem = f"{folder} has no tokenizer; accepted: {accepted}, or option.tokenizer"
        raise PlanError(problem)
    if _TOKENIZER in names and "model" not in _read_json(folder / _TOKENIZER):
        raise PlanError(f'{folder / _TOKENIZER} has no "model"; a tokenizer of this format has one')
    for name in filter(_TOKENIZERS.fullmatch, names):
        _begin(folder / name, 1)


def _tensors(folder: Path, names: list[str]) -> dict[str, StoredTensor]:
    """Return the tensors of all safetensors files; look that each weights file is whole."""
    for index in filter(names.__contains__, _INDICES):
        files = _read_json(folder / index).get("weight_map")
        if not isinstance(files, dict):
            raise PlanError(f'{folder / index} has no "weight_map"')
        if lacking := sorted({str(each) for each in files.values()} - {*names}):
            missing = f"{lacking[0]}" + f" and {len(lacking) - 1} more" * (len(lacking) > 1)
            raise PlanError(f"{folder / index} names {missing}: not in the folder")
    tensors: dict[str, StoredTensor] = {}
    for name in names:
        if name.endswith(".safetensors"):
            tensors.update(_table(folder / name))
        elif name.endswith(_WEIGHTS):
            begin = _begin(folder / name, 4)
            if begin[:2] == b"PK" and not zipfile.is_zipfile(folder / name):
                raise PlanError(f"{folder / name} is cut: its end is missing")
    return tensors


def _table(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """Yield the tensors of a file, by its head.

    Raises:
        PlanError: the file is cut, or is none of safetensors.
    """
    _begin(path, _LENGTH)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH), "little")
        if length > size:
            raise PlanError(f"{path} is cut, or no safetensors file: it has {size} bytes")
        try:
            table: dict[str, Any] = json.loads(file.read(length))
            table.pop("__metadata__", None)
            whole = (
                _LENGTH + length + max((t["data_offsets"][1] for t in table.values()), default=0)
            )
            rows = [
                (name, StoredTensor(path.name, t["dtype"], t["shape"])) for name, t in table.items()
            ]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise PlanError(
                f"{path} is not a safetensors file: its table cannot be read"
            ) from error
    if size != whole:
        raise PlanError(f"{path} is {'cut' if size < whole else 'broken'}: {size} bytes of {whole}")
    yield from rows


def _compare(config: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Compare shapes with config.json, for the names that decoders of text have."""
    written = _read_json(config)
    text = written.get("text_config")
    fields = text if isinstance(text, dict) else written
    if (
        (embedding := tensors.get(_EMBEDDING))
        and embedding.dtype in _PLAIN
        and len(embedding.shape) > 1
    ):
        pairs = zip(("vocab_size", "hidden_size"), embedding.shape, strict=False)
        for field, number in pairs:
            expected = fields.get(field)
            if isinstance(expected, int) and expected != number:
                problem = f"{_EMBEDDING} has {number}, and {config} has {field}={expected}"
                raise PlanError(f"{config.parent / embedding.file}: {problem}")
    count = max((int(match[1]) + 1 for match in map(_LAYER.match, tensors) if match), default=0)
    expected = fields.get("num_hidden_layers")
    if count and isinstance(expected, int) and count < expected:
        problem = (
            f"has the weights of {count} layers, and {config} has num_hidden_layers={expected}"
        )
        raise PlanError(f"{config.parent} {problem}")


def _read_json(path: Path) -> dict[str, Any]:
    """Return an object of a file.

    Raises:
        PlanError: the file cannot be read, or is none.
    """
    _begin(path, 1)
    try:
        value = json.loads(read_bounded(path, _LONGEST))
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise PlanError(f"{path} is not a JSON object")
    return value


def _begin(path: Path, least: int) -> bytes:
    """Return the first bytes of a file.

    Raises:
        PlanError: it cannot be read, is too short, or is what Git LFS has in its place.
    """
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
