"""What the files of a model say of themselves, before an engine reads them for minutes."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple

from lmi_backend.errors import PlanError
from lmi_backend.fetch.hub import SHORT_ERRORS
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
_GGUF_HEAD: Final = 24
"""Bytes of its magic, its version, and the numbers of its tensors and fields."""
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
    ("max_new_tokens min_p repetition_penalty temperature top_k top_p", (int, float), "a number"),
)
"""Fields of it that are defaults of requests, their types, and what is accepted."""
_TOKENIZER: Final = "tokenizer.json"
_LONGEST: Final = 256 * MIB
"""Bytes of a file of JSON; those of large vocabularies have 33 million."""
_LENGTH: Final = 8
"""Bytes of a safetensors file that say how long its table is."""
_TORCH: Final = (b"PK", b"\x80\x02")
"""Beginnings of what `torch.save` writes, now and before."""
_POINTER: Final = b"version https://git-lfs"
_PLAIN: Final = ("F32", "F16", "BF16")
"""Types of tensors that nothing is packed into."""
_SHARD: Final = re.compile(r"(.+-)\d+-of-(\d+)(\..+)")
_SIZES: Final = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
)  # fmt: skip
_DEFAULTED: Final = ("num_key_value_heads", "head_dim", "max_position_embeddings")
_FIELDS: Final = (
    # Of some models, each layer has its own.
    (" ".join((*_SIZES, "num_key_value_heads head_dim")), (int, list), "a whole number"),
    ("max_position_embeddings rms_norm_eps rope_theta", (int, float, list), "a number"),
    ("model_type hidden_act", (str,), "a text"),
    ("architectures", (list,), "a list"),
    ("quantization_config rope_parameters rope_scaling", (dict,), "an object"),
)
_DTYPE: Final = re.compile(r"(torch\.)?(auto|half|double|bfloat16|float(16|32|64|8_\w+)?|u?int\d+)")
_ALIKE: Final = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Architectures all of whose layers have the tensors and shapes that config.json says."""
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.+)")
_WIDTH: Final = ("hidden_size",)
_HEADS: Final = ("num_attention_heads", "head_dim")
_KV_HEADS: Final = ("num_key_value_heads", "head_dim")
_MIDDLE: Final = ("intermediate_size",)
_Dimensions = tuple[tuple[str, ...], ...]
"""Fields of config.json whose product is the size of each dimension of a tensor."""
_OF_WORDS: Final = (("vocab_size",), _WIDTH)
_LAYER_TENSORS: Final = {
    "input_layernorm": (_WIDTH,),
    "self_attn.q_proj": (_HEADS, _WIDTH),
    "self_attn.k_proj": (_KV_HEADS, _WIDTH),
    "self_attn.v_proj": (_KV_HEADS, _WIDTH),
    "self_attn.o_proj": (_WIDTH, _HEADS),
    "post_attention_layernorm": (_WIDTH,),
    "mlp.gate_proj": (_MIDDLE, _WIDTH),
    "mlp.up_proj": (_MIDDLE, _WIDTH),
    "mlp.down_proj": (_WIDTH, _MIDDLE),
}
_OTHER_EMBEDDINGS: Final = {"embed_tokens.weight", "tok_embeddings.weight"}
"""Of files that have other names: Mistral's own, and those of a model without a head."""
_LOAD_TOKENIZER: Final = f"""{SHORT_ERRORS}
from tokenizers import Tokenizer
Tokenizer.from_file(sys.argv[1])
"""
_LOAD_SECONDS: Final = 30.0


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


def check_model_files(
    folder: Path, python: str, *, has_tokenizer: bool, must_be_whole: bool
) -> None:
    """Refuse a folder whose files no engine could load; a few kilobytes of each large one are read.

    Args:
        python: the engine's, whose library says whether it can read the tokenizer.
        has_tokenizer: whether the engine takes the tokenizer from it.
        must_be_whole: refuse config.json alone, which is enough for a plan, and an empty folder.

    Raises:
        PlanError: a file is missing, is cut, cannot be read or contradicts config.json.
    """
    names = _names(folder)
    has_weights = any(name.endswith(_WEIGHTS) for name in names)
    is_tokenized = any(_TOKENIZERS.fullmatch(name) for name in names)
    if not (has_weights or is_tokenized or must_be_whole):
        return
    if not any(name in _CONFIGS or name.endswith(_GGUF) for name in names):
        raise PlanError(f"{folder} has no {_CONFIG}")
    tensors = stored_tensors(folder)
    if not has_weights:
        raise PlanError(f"{folder} has no weights, such as model.safetensors")
    for name in filter(names.__contains__, _READ):
        _read_json(folder / name)
    if _GENERATION in names:
        _check_types(folder / _GENERATION, _read_json(folder / _GENERATION), _SAMPLING)
    if _CONFIG in names:
        _compare(folder / _CONFIG, tensors)
    # The model that an adapter names may have its tokenizer.
    if has_tokenizer and (is_tokenized or _ADAPTER not in names):
        check_tokenizer(folder, python)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise PlanError(f"{folder} cannot be read: {error.strerror}") from error


def check_tokenizer(folder: Path, python: str) -> None:
    """Refuse a folder without a tokenizer that the engine in an interpreter could load.

    Raises:
        PlanError: it has none, or the file cannot be read.
    """
    names = _names(folder)
    if not any(map(_TOKENIZERS.fullmatch, names)):
        accepted = "tokenizer.json, tokenizer.model, vocab.json or tekken.json"
        problem = f"{folder} has no tokenizer; accepted: {accepted}, or option.tokenizer"
        raise PlanError(problem)
    if _TOKENIZER in names:
        model = _read_json(folder / _TOKENIZER).get("model")
        if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
            raise PlanError(f'{folder / _TOKENIZER} has no "model" with a "vocab"')
        if problem := _why_not_read(folder / _TOKENIZER, python):
            raise PlanError(f"{folder / _TOKENIZER} is not read by the engine's library: {problem}")
    for name in filter(_TOKENIZERS.fullmatch, names):
        _begin(folder / name, 1)


def _why_not_read(tokenizer: Path, python: str) -> str:
    """Return what the engine's library of tokenizers says; empty without such a library."""
    command = (python, "-c", _LOAD_TOKENIZER, str(tokenizer))
    try:
        done = subprocess.run(  # noqa: S603  the interpreter that will run the engine
            command, capture_output=True, text=True, timeout=_LOAD_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    kind, _, problem = done.stderr.strip().rpartition("\n")[2].partition(": ")
    return problem if done.returncode and kind.endswith("Exception") else ""


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a folder's safetensors files.

    Raises:
        PlanError: a file of weights is missing, is cut, or is none.
    """
    names = _parts(folder, _names(folder))
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
        begin = _begin(folder / name, _GGUF_HEAD if name.endswith(_GGUF) else 4)
        if begin[:2] == b"PK":
            _check_zip(folder / name)
        if name.endswith(_PICKLES) and not begin.startswith(_TORCH):
            raise PlanError(f"{folder / name} is not a file of torch.save")
        if name.endswith(_GGUF) and begin[:4] != b"GGUF":
            raise PlanError(f"{folder / name} is not a GGUF file")
    return tensors


def _parts(folder: Path, names: list[str]) -> list[str]:
    """Return what an engine reads of a folder's files, and look that none is missing."""
    # Whoever fetches safetensors files alone has the index of the others beside them.
    safe = [name for name in names if name.endswith(_SAFE)]
    shards = Counter(match.groups() for match in map(_SHARD.fullmatch, safe or names) if match)
    indices = _INDICES[:1] if safe else _INDICES
    for index in filter(names.__contains__, indices):
        files = _read_json(folder / index).get("weight_map")
        if not isinstance(files, dict) or not files:
            raise PlanError(f'{folder / index} has no "weight_map"')
        if lacking := sorted({str(each) for each in files.values()} - {*names}):
            missing = f"{lacking[0]}" + f" and {len(lacking) - 1} more" * (len(lacking) > 1)
            raise PlanError(f"{folder / index} names {missing}: not in the folder")
        if index.startswith(f"model{_SAFE}"):
            return sorted({*files.values()})
    for (begin, total, end), number in shards.items():
        if number < int(total):
            has = f"has {number} of the {int(total)} files {begin}*-of-{total}{end}"
            raise PlanError(f"{folder} {has}")
    return names


def _check_zip(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        raise PlanError(f"{path} is cut: its end is missing")
    with zipfile.ZipFile(path) as file:
        if not any(name.endswith("data.pkl") for name in file.namelist()):
            raise PlanError(f"{path} is not a file of torch.save: it has no data.pkl")


def _table(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file, by its head, or refuse it."""
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


def _check_types(
    path: Path, data: Mapping[str, Any], rows: Sequence[tuple[str, Sequence[type], str]]
) -> None:
    for names, types, accepted in rows:
        for name in names.split():
            # A boolean is an int.
            if type(data.get(name)) not in (*types, NoneType):
                raise PlanError(f"{path} has {name}={data[name]!r}; accepted: {accepted}")


def _compare(config: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Compare config.json with what the engine takes, and with the tensors that it has."""
    written = _read_json(config)
    text = written.get("text_config")
    fields = text if isinstance(text, dict) else written
    _check_types(config, written, _FIELDS)
    is_alike = any(each in _ALIKE for each in written.get("architectures") or ())
    _check_fields(config, written, fields, is_alike=is_alike)
    layers = {int(match[1]) for match in map(_LAYER.match, tensors) if match}
    number, expected = max(layers, default=-1) + 1, fields.get("num_hidden_layers")
    if not isinstance(expected, int):
        expected = number
    # Behind their last layer others have some that guess tokens.
    if layers and (number < expected or (is_alike and number > expected)):
        problem = f"has the weights of {number} layers"
        raise PlanError(f"{config.parent} {problem}, and {config} has num_hidden_layers={expected}")
    if is_alike and tensors:
        heads, width = fields["num_attention_heads"], fields["hidden_size"]
        for field, value in (("head_dim", width // heads), ("num_key_value_heads", heads)):
            fields = {**fields, field: fields.get(field) or value}
    has_all = is_alike and tensors and all(each.dtype in _PLAIN for each in tensors.values())
    has_all = has_all and tensors.keys().isdisjoint(_OTHER_EMBEDDINGS)
    for name, dimensions in _tensors_of(fields, max(number, 1) if is_alike else 0):
        if (tensor := tensors.get(name)) and tensor.dtype in _PLAIN:
            _compare_shape(config, fields, tensor, name, dimensions)
        elif has_all:
            raise PlanError(f"{config.parent} has weights, and no {name} among them")


def _check_fields(
    config: Path, written: Mapping[str, Any], fields: Mapping[str, Any], *, is_alike: bool
) -> None:
    _check_types(config, fields, _FIELDS)
    if not written.get("model_type") and "auto_map" not in written:
        raise PlanError(f"{config} has no model_type")
    for field in ("dtype", "torch_dtype"):
        if isinstance(dtype := written.get(field), str) and not _DTYPE.fullmatch(dtype):
            raise PlanError(f"{config} has {field}={dtype!r}; accepted: such as 'bfloat16'")
    for field in (*_SIZES, *(_DEFAULTED if is_alike else ())):
        value = fields.get(field)
        is_missing = is_alike and field in _SIZES and type(value) is not int
        if is_missing or (isinstance(value, int) and value < is_alike):
            given = f"no {field}" if value is None else f"{field}={value!r}"
            raise PlanError(f"{config} has {given}; accepted: a whole number above 0")


def _tensors_of(fields: Mapping[str, Any], layers: int) -> Iterator[tuple[str, _Dimensions]]:
    """Give the tensors of a decoder; without layers, only what all decoders have alike."""
    yield "model.embed_tokens.weight", _OF_WORDS
    for layer in range(layers):
        for name, dimensions in _LAYER_TENSORS.items():
            yield f"model.layers.{layer}.{name}.weight", dimensions
    if layers:
        yield "model.norm.weight", (_WIDTH,)
        if not fields.get("tie_word_embeddings"):
            yield "lm_head.weight", _OF_WORDS


def _compare_shape(
    config: Path,
    fields: Mapping[str, Any],
    tensor: StoredTensor,
    name: str,
    dimensions: _Dimensions,
) -> None:
    values: dict[str, Any] = {field: fields.get(field) for each in dimensions for field in each}
    if not all(isinstance(value, int) for value in values.values()):
        return
    if tensor.shape != [math.prod(values[field] for field in each) for each in dimensions]:
        given = ", ".join(f"{field}={value}" for field, value in values.items())
        raise PlanError(f"{tensor.path}: {name} is {tensor.shape}, and {config} has {given}")


def _read_json(path: Path) -> dict[str, Any]:
    """Return an object of a file, or refuse the file."""
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
    """Return the first bytes of a file, or refuse it: what Git LFS has in its place, too."""
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
