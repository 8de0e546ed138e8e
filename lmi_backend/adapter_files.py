"""The files of a LoRA adapter, as they are now."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_OLDER_WEIGHTS: Final = "adapter_model.bin"
_LENGTH: Final = 8
"""Bytes of a safetensors file that say how long its table is."""

Seen = frozenset[tuple[str, int, int, int, int]]
"""Name, inode, size and times of each file of a folder."""


def seen(folder: str) -> Seen:
    """Return what differs once a file of a folder is changed, replaced or removed.

    Of what is no folder, such as an adapter's id on the Hub, it is empty.
    """
    found = set()
    try:
        for name in os.listdir(folder):
            each = os.stat(os.path.join(folder, name))
            found.add((name, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns))
    except OSError:
        pass
    return frozenset(found)


def without_folder(text: object, folder: str) -> str:
    """Return an error about an adapter as any client may read it: without its folder."""
    return str(text).replace(f"{folder}/", "").replace(folder, "its folder")


def problem_of(folder: str, max_rank: int) -> str:
    """Return why no engine could load an adapter; empty if nothing is known to be wrong.

    Args:
        folder: the adapter's.
        max_rank: the largest rank that is served.
    """
    try:
        config = json.loads(Path(folder, CONFIG).read_bytes())
        rank = config["r"]
        if rank > max_rank:
            return f"{CONFIG} has r={rank}; accepted: at most option.max_lora_rank={max_rank}"
        return _problem_of_weights(Path(folder))
    except (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError) as error:
        words = without_folder(error, folder)
        return f"its files cannot be read: {type(error).__name__}: {words}"


def _problem_of_weights(folder: Path) -> str:
    path = folder / WEIGHTS
    if not path.exists():
        return "" if (folder / _OLDER_WEIGHTS).exists() else f"has no {WEIGHTS}"
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH), "little")
        if length > size:
            return f"{WEIGHTS} is broken: {size} bytes are less than the length of its table"
        tensors: dict[str, Any] = json.loads(file.read(length))
    tensors.pop("__metadata__", None)
    ends = (int(tensor["data_offsets"][1]) for tensor in tensors.values())
    whole = _LENGTH + length + max(ends, default=0)
    return "" if size == whole else f"{WEIGHTS} is broken: it has {size} bytes of {whole}"
