"""Files and folders that somebody else may have written, and the files of a LoRA adapter.

A sparse file of 20 GB, or a pipe, is an error. In /tmp anybody can make a folder of any name.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import MIB, human_bytes

LARGEST: Final = 64 * MIB
"""Bytes; the index of a large model's weights has ten million."""


def read_bounded(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than `most` bytes.
    """
    # A pipe is not waited for.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        problem = f"is too large; accepted: at most {human_bytes(most)}"
        raise OSError(errno.EFBIG, problem, str(path))
    return data


CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_OLDER_WEIGHTS: Final = "adapter_model.bin"
_LENGTH: Final = 8
"""Bytes of a safetensors file that say how long its table is."""
_UNREADABLE: Final = (
    AttributeError, LookupError, OSError, OverflowError, RecursionError, TypeError, ValueError
)  # fmt: skip
"""What comes of files that are no adapter's."""

Seen = frozenset[tuple[str, int, int, int, int]]
"""Name, inode, size and times of each file of a folder."""


def seen(folder: str) -> Seen:
    """Return what differs once a file of a folder is changed, replaced or removed.

    Of what is not a folder, such as an adapter's id on the Hub, it is empty.
    """
    files = set()
    try:
        for name in os.listdir(folder):
            each = os.stat(os.path.join(folder, name))
            files.add((name, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns))
    except OSError:
        pass
    return frozenset(files)


def without_folder(text: object, folder: str) -> str:
    """Return an error about an adapter as any client may read it: without its folder."""
    return str(text).replace(f"{folder}/", "").replace(folder, "its folder")


def problem_of(folder: str, max_rank: int) -> str:
    """Return why no engine could load an adapter; empty if nothing is known to be wrong."""
    try:
        config = json.loads(Path(folder, CONFIG).read_bytes())
        rank = config["r"]
        if rank > max_rank:
            return f"{CONFIG} has r={rank}; accepted: at most option.max_lora_rank={max_rank}"
        return _problem_of_weights(Path(folder))
    except _UNREADABLE as error:
        words = without_folder(error, folder)
        return f"its files cannot be read: {type(error).__name__}: {words}"


def _problem_of_weights(folder: Path) -> str:
    path = folder / WEIGHTS
    # A pipe would be waited for.
    if not path.is_file():
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


_PRIVATE: Final = 0o700
# Where engines and their libraries keep what they load, or run, again: models, kernels, code.
_CACHES: Final = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_MODULES_CACHE",
    "TRANSFORMERS_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "XDG_CACHE_HOME",
    "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "FLASHINFER_WORKSPACE_BASE",
    "NUMBA_CACHE_DIR",
    "PYTORCH_KERNEL_CACHE_PATH",
    "CUDA_CACHE_PATH",
    "OUTLINES_CACHE_DIR",
    "NEURON_COMPILE_CACHE_URL",
)
# In these the Hub's library keeps models and the code of their authors.
_OF_THE_HUB: Final = ("hub", "modules", "xet")


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700, or take the one that is there if it is this user's.

    One of this user's that others could read is closed to them. One that they could write to is
    refused: its content may be theirs.

    Raises:
        ConfigurationError: it is not a folder, a link, somebody else's, or was open to others.
    """
    try:
        path.mkdir(mode=_PRIVATE, exist_ok=True)
        # What is opened is what is looked at and changed, whatever the name leads to by then.
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        # A link is ELOOP or ENOTDIR, a file EEXIST: all mean that it is not a folder.
        raise ConfigurationError(_refused(path, "cannot be used as a folder")) from error
    try:
        status = os.fstat(opened)
        if status.st_uid != os.getuid():
            raise ConfigurationError(_refused(path, f"belongs to user {status.st_uid}"))
        if stat.S_IMODE(status.st_mode) & 0o022:
            raise ConfigurationError(_refused(path, "can be written by others"))
        if stat.S_IMODE(status.st_mode) != _PRIVATE:
            os.fchmod(opened, _PRIVATE)
    finally:
        os.close(opened)
    return path


def secure_cache(path: Path, name: str = "") -> None:
    """Make sure that no stranger made, or can exchange, a folder that a user has chosen.

    Where everybody may write, the folders above it must be this user's or root's. Missing ones
    are made now, with mode 0700, before anybody else makes them.

    Args:
        path: the folder; it need not exist.
        name: the variable that says so, for errors.

    Raises:
        ConfigurationError: a part of it is somebody else's.
    """
    # Links are looked at, and what they lead to; resolve() alone would go through them.
    for way in map(Path, dict.fromkeys((os.path.abspath(path), os.path.realpath(path)))):
        parts = (*reversed(way.parents), way)[1:]
        # What is not there, or not for us, an engine can use as little.
        with contextlib.suppress(OSError):
            for part in parts:
                _claim(part, name)


def _claim(part: Path, name: str) -> None:
    """Make a folder where everybody may write, or refuse what a stranger has made there."""
    if not part.parent.stat().st_mode & stat.S_IWOTH:
        return
    try:
        part.mkdir(mode=_PRIVATE)
    except FileExistsError:
        _refuse_other_owner(part, name)


def secure_caches(environment: Mapping[str, str]) -> None:
    """Do as `secure_cache` for every cache that the variables of a worker name."""
    for name, path in _caches(environment):
        if path.name == kernel_cache().name:
            private_folder(path)
        else:
            secure_cache(path, name)


def kernel_cache() -> Path:
    """Return where compiled kernels of this user's workers are kept, over their lives."""
    return Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}"


def _caches(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for name in _CACHES:
        value = environment.get(name, "")
        if value and "://" not in value:
            path = Path(os.path.expanduser(value))
            # /tmp itself is a usual one.
            yield from ((name, path / part) for part in _OF_THE_HUB if name == "HF_HOME")
            yield name, path


def check_owner(path: Path) -> None:
    """Refuse what is not this user's or root's, is a link, or can be written by everybody."""
    if path.is_symlink():
        raise ConfigurationError(_refused(path, "is a link"))
    _refuse_other_owner(path)


def _refuse_other_owner(path: Path, name: str = "") -> None:
    # Of a link, not of what it leads to: who made it may lead it elsewhere.
    status = path.lstat()
    if status.st_uid not in (os.getuid(), 0):
        raise ConfigurationError(_refused(path, f"belongs to user {status.st_uid}", name))
    is_open = status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode)
    # In a folder like /tmp each entry is looked at. What is mounted there, only root has mounted.
    if is_open and not status.st_mode & stat.S_ISVTX and not path.is_mount():
        raise ConfigurationError(_refused(path, "can be written by everybody", name))


def _refused(path: Path, problem: str, name: str = "") -> str:
    prefix = f"{name}: " if name else ""
    return (
        f"{prefix}{path}: {problem}; accepted: a folder of this user (uid {os.getuid()}) that "
        "nobody else can write to; remove it, or name another"
    )
