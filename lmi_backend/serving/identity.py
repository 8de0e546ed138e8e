"""Tell a model, its tokenizer and its adapters from others of the same name.

An answer resumes from the ids of its tokens, which another model or tokenizer would read as other
text. Small files are read whole. Weights have gigabytes, so only bytes at many places are read.
Times of files do not count: the same weights may have been fetched again.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.fetch.hub import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.pool.adapters import AdapterSet
    from lmi_backend.pool.rank_group import Worker

_READ_BYTES: Final = 32 << 20
"""Of the largest file that is read; tokenizers have up to 20 MB."""
_READ: Final = (".json", ".jinja", ".txt", ".model", ".tiktoken")
_SAMPLED: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
_SAMPLES: Final = 1024
"""Places in a file of weights that are read: in 5 GB, one every 5 MB, which most tensors have."""
_SAMPLE_BYTES: Final = 64
_END_BYTES: Final = 64 << 10
"""Bytes that are read at the start and the end of a file, where formats have their tables and
checksums."""
# What the server and the hub's library write beside a model.
_NOT_THE_MODELS: Final = frozenset({"serving.properties", "requirements.txt"})
_CHOICES: Final = (
    "revision", "tokenizer", "tokenizer_mode", "tokenizer_revision", "hf_config_path",
    "hf_overrides", "chat_template", "quantization", "load_format", "generation_config",
    "override_generation_config",
)  # fmt: skip
"""Arguments of engines that decide what token ids, or a prompt, mean."""


def model_digest(config: EngineConfig, environment: Mapping[str, str]) -> str:
    """Return what changes with a model's files, and with what its token ids mean."""
    settings: dict[str, Any] = {**config.front_end, **config.passthrough, **config.arguments}
    choices = {name: str(settings[name]) for name in _CHOICES if settings.get(name) is not None}
    revision = choices.get("revision", "")
    sources = [(config.model, revision)]
    if "tokenizer" in choices:
        sources.append((choices["tokenizer"], choices.get("tokenizer_revision", revision)))
    files = [list(_files(folder_of(*each, environment))) for each in sources]
    # An option may say it, or name the file that does.
    named = choices.get("chat_template")
    template = _content(Path(named), is_read=True) if named else ""
    return _digest([config.model, choices, files, template])


def identify(
    worker: Worker, adapters: AdapterSet, config: EngineConfig, environment: Mapping[str, str]
) -> None:
    """Note what a worker has, or will load, that was just started, as the files are now."""
    worker.identity = replace(worker.identity, digest=model_digest(config, environment))
    adapters.note_files(adapter_digest)


def adapter_digest(folder: str) -> str:
    return _digest([folder, list(_files(Path(folder)))])


def _files(folder: Path | None) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that is the model's, and what stands for what is in it."""
    if folder is None:
        return
    try:
        names = sorted(os.listdir(folder))
    except (OSError, ValueError):
        return
    for name in names:
        ending = os.path.splitext(name)[1]
        if name not in _NOT_THE_MODELS and ending in _READ + _SAMPLED:
            yield name, _content(folder / name, is_read=ending in _READ)


def _content(path: Path, *, is_read: bool) -> str:
    """Return what stands for a file; without reading all of it, a change of few bytes is not seen.

    Nothing is read of a pipe, which may never end.
    """
    try:
        if not path.is_file():
            return "no file"
        if is_read and path.stat().st_size <= _READ_BYTES:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        return _sampled(path)
    except (OSError, ValueError):
        return "unreadable"


def _sampled(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        number = file.fileno()
        size = os.fstat(number).st_size
        # Else the system reads 128 KiB at each place.
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)
        found = hashlib.sha256(os.pread(number, _END_BYTES, 0))
        found.update(os.pread(number, _END_BYTES, max(size - _END_BYTES, 0)))
        for place in range(0, size, max(size // _SAMPLES, _SAMPLE_BYTES)):
            found.update(os.pread(number, _SAMPLE_BYTES, place))
    return f"{size} {found.hexdigest()}"


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
