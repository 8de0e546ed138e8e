"""Download a Hub model's weights before its engine starts, and tell how far it is.

An engine downloads them too, without a line and within the time that its load may take. What this
module cannot fetch, the engine fetches as before.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch.hub import HUB_ID, SHORT_ERRORS, cache_of, cause_of, is_offline, snapshot
from lmi_backend.files import secure_caches
from lmi_backend.printable import human_bytes

INDEX: Final = "model.safetensors.index.json"
"""Has the names and the size of the weights, where they are in several files."""
_SINGLE: Final = "model.safetensors"
_POLL_SECONDS: Final = 1.0
_LARGEST_INDEX: Final = 64 << 20
# It runs in the workers' interpreter, which has huggingface_hub.
_PROGRAM: Final = (
    SHORT_ERRORS
    + """
import json, os, threading
from concurrent.futures import ThreadPoolExecutor
from huggingface_hub import HfApi, hf_hub_download

model, revision, index, single, whole = sys.argv[1:]
place = {"revision": revision or None}


def end_with_the_parent():
    sys.stdin.read()
    os._exit(1)


threading.Thread(target=end_with_the_parent, daemon=True).start()
tree = HfApi().list_repo_tree(model, recursive=True, **place)
sizes = {each.path: each.size for each in tree if hasattr(each, "size")}
wanted = list(sizes) if whole else [single]
if not whole and index in sizes:
    with open(hf_hub_download(model, index, **place)) as file:
        wanted = sorted(set(json.load(file)["weight_map"].values()))
print(sum(sizes.get(name, 0) for name in wanted), flush=True)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda name: hf_hub_download(model, name, **place), wanted))
"""
)


@dataclass(frozen=True)
class Download:
    """How far a download is."""

    done: int
    """Bytes."""
    total: int
    rate: float
    """Bytes a second; 0 while it is not known."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds to its end, at this rate."""
        return (self.total - self.done) / self.rate if self.rate else None

    @property
    def percent(self) -> int:
        """How much is there, of 100."""
        return int(100 * self.done / self.total) if self.total else 0

    def __str__(self) -> str:
        """Return "downloading: 62 %, 81.2 of 131.0 GiB, 210.0 MiB/s, about 4 min"."""
        text = f"downloading: {self.percent} %, {human_bytes(self.done)} of "
        text += human_bytes(self.total)
        if self.seconds_left is None:
            return text
        return f"{text}, {human_bytes(self.rate)}/s, about {duration(self.seconds_left)}"


def duration(seconds: float) -> str:
    """Return a time for people: "40 s", "3 min", "1 h 20 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def fetch_weights(
    python: str,
    model: str,
    revision: str,
    environment: Mapping[str, str],
    tell: Callable[[Download], None],
    *,
    whole: bool = False,
) -> str:
    """Download the weights of a Hub model; return why that was not possible, empty if it was.

    A file whose download was cut is fetched again; files that are there are not.

    Args:
        model: organisation/model; anything else is nothing to download.
        revision: branch, tag or commit; empty for the main branch.
        tell: is called each second with how far it is.
        whole: whether the other files of the model are wanted too.
    """
    is_remote = HUB_ID.fullmatch(model) and not os.path.isdir(model)
    is_wanted = is_remote and not is_offline(environment)
    if not whole and (not is_wanted or _has_weights(snapshot(model, revision, environment))):
        return ""
    command = (python, "-c", _PROGRAM, model, revision, INDEX, _SINGLE, "whole" if whole else "")
    blobs = cache_of(environment) / f"models--{model.replace('/', '--')}" / "blobs"
    try:
        secure_caches(environment)
        return _run(command, environment, blobs, tell)
    except (OSError, ConfigurationError) as error:
        return str(error)


def _run(
    command: tuple[str, ...],
    environment: Mapping[str, str],
    blobs: Path,
    tell: Callable[[Download], None],
) -> str:
    with subprocess.Popen(  # noqa: S603  the plan's own interpreter
        command,
        env={**environment, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            if process.stdout and (size := process.stdout.readline()):
                _watch(process, blobs, int(size), tell)
            words = process.stderr.read().decode("utf-8", "replace") if process.stderr else ""
        except BaseException:
            process.kill()
            raise
    return cause_of(words, command[0]) if process.returncode else ""


def _watch(
    process: subprocess.Popen[bytes], blobs: Path, total: int, tell: Callable[[Download], None]
) -> None:
    """Tell each second how much is there, until the download is over."""
    began, size = time.monotonic(), _size_of(blobs)
    while True:
        seconds, done = time.monotonic() - began, min(total, _size_of(blobs))
        tell(Download(done, total, max(0.0, (done - size) / max(seconds, _POLL_SECONDS))))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return


def _size_of(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            # One that has just been renamed counts a second later.
            with contextlib.suppress(OSError):
                total += each.stat().st_size
    return total


def _has_weights(folder: Path) -> bool:
    """Tell whether all files of weights are in the local cache."""
    index = folder / INDEX
    try:
        with index.open("rb") as file:
            names = set(json.loads(file.read(_LARGEST_INDEX))["weight_map"].values())
    except FileNotFoundError:
        return (folder / _SINGLE).is_file()
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False
    return all((folder / str(name)).is_file() for name in names)
