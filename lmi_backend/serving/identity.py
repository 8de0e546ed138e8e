"""Tell a model, its tokenizer and its adapters from others of the same name.

An answer goes on from the ids of its tokens: with another model or tokenizer they are other words.
Small files count by what is in them, weights by name, size and time: they have gigabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.fetch.hub import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.engine_config import EngineConfig

_READ_BYTES: Final = 32 << 20
"""Of the largest file that is read; tokenizers have up to 20 MB."""
_READ: Final = (".json", ".jinja", ".txt", ".model", ".tiktoken")
_LOOKED_AT: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
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
    said: dict[str, Any] = {**config.front_end, **config.passthrough, **config.arguments}
    choices = {name: str(said[name]) for name in _CHOICES if said.get(name) is not None}
    revision = choices.get("revision", "")
    sources = [(config.model, revision)]
    if "tokenizer" in choices:
        sources.append((choices["tokenizer"], choices.get("tokenizer_revision", revision)))
    files = [list(_files(_folder(*each, environment))) for each in sources]
    # An option may say it, or name the file that does.
    named = choices.get("chat_template")
    template = list(_in_full(Path(named))) if named else []
    return _digest([config.model, choices, files, template])


def adapter_digest(folder: str) -> str:
    """Return what changes with the files of an adapter."""
    return _digest([folder, list(_files(Path(folder)))])


def _folder(model: str, revision: str, environment: Mapping[str, str]) -> Path | None:
    """Return where a model's files are; None if it has none, or the engine keeps them elsewhere."""
    try:
        here = Path(model)
        return (
            None if not model else here if here.is_dir() else snapshot(model, revision, environment)
        )
    except (OSError, ValueError):
        return None


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
        if name not in _NOT_THE_MODELS and ending in _READ + _LOOKED_AT:
            yield from (_in_full if ending in _READ else _by_time)(folder / name)


def _in_full(path: Path) -> Iterator[tuple[str, str]]:
    """Yield a file with what is in it, if it is one."""
    try:
        # Nothing is read of a pipe, which may never end.
        if path.is_file() and path.stat().st_size <= _READ_BYTES:
            yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            yield from _by_time(path)
    except (OSError, ValueError):
        yield path.name, "unreadable"


def _by_time(path: Path) -> Iterator[tuple[str, str]]:
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return
    yield path.name, f"{stat.st_size} {stat.st_mtime_ns}"


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
