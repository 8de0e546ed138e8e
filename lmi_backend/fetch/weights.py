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
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch.hub import HUB_ID, cache_of, cause_of, snapshot
from lmi_backend.private_folders import secure_caches
from lmi_backend.units import human_bytes

INDEX: Final = "model.safetensors.index.json"
"""Has the names and the size of the weights, where they are in several files."""
_SINGLE: Final = "model.safetensors"
_POLL_SECONDS: Final = 1.0
_RATE_SAMPLES: Final = 20
_LARGEST_INDEX: Final = 64 << 20
# It runs in the workers' interpreter, which has huggingface_hub. A file that was cut stays under
# a name of ours: the library begins each attempt anew.
_PROGRAM: Final = """\
import concurrent.futures, contextlib, fcntl, hashlib, json, os, sys, threading
from urllib.parse import urlsplit
from huggingface_hub import file_download as hub
from huggingface_hub.errors import EntryNotFoundError

model, revision, cache, index, single = sys.argv[1:]
# So that a slow line is seen to move.
hub.constants.DOWNLOAD_CHUNK_SIZE = 1 << 17
place = {"revision": revision or None, "cache_dir": cache}


def end_with_the_parent():
    sys.stdin.read()
    os._exit(1)


threading.Thread(target=end_with_the_parent, daemon=True).start()


def names():
    try:
        with open(hub.hf_hub_download(model, index, **place)) as file:
            return sorted(set(json.load(file)["weight_map"].values()))
    except EntryNotFoundError:
        return [single]


def describe(name):
    return hub.get_hf_file_metadata(hub.hf_hub_url(model, name, revision=revision or None))


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(1 << 22):
            found.update(data)
    return found.hexdigest()


def fetch(name, about):
    try:
        resume(about)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    hub.hf_hub_download(model, name, **place)


def resume(about):
    blobs = os.path.join(cache, "models--" + model.replace("/", "--"), "blobs")
    whole = os.path.join(blobs, about.etag)
    if os.path.exists(whole):
        return
    os.makedirs(blobs, exist_ok=True)
    part = whole + ".part.incomplete"
    with open(part, "ab") as file:
        # Several models of one server may have the same weights.
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.exists(whole):
            with contextlib.suppress(FileNotFoundError):
                os.remove(part)
            return
        had = os.path.getsize(part)
        if had < about.size:
            headers = hub.build_hf_headers()
            if urlsplit(about.location).netloc != urlsplit(hub.constants.ENDPOINT).netloc:
                headers.pop("authorization", None)
            hub.http_get(
                about.location, file, resume_size=had, headers=headers, expected_size=about.size
            )
        file.flush()
        if had and len(about.etag) == 64 and digest(part) != about.etag:
            os.remove(part)
            raise ValueError("what was there of it was of another file")
        os.replace(part, whole)


wanted = names()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    described = list(pool.map(describe, wanted))
    print(json.dumps(sum(each.size or 0 for each in described)), flush=True)
    list(pool.map(fetch, wanted, described))
"""


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
) -> str:
    """Download the weights of a Hub model; return why that was not possible, empty if it was.

    Args:
        python: the workers' interpreter.
        model: organisation/model; anything else is nothing to download.
        revision: branch, tag or commit; empty for the main branch.
        environment: the variables of the workers.
        tell: is called each second with how far it is.
    """
    is_offline = environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    if is_offline or not HUB_ID.fullmatch(model) or os.path.isdir(model):
        return ""
    if _has_weights(snapshot(model, revision, environment)):
        return ""
    try:
        secure_caches(environment)
        return _run(python, model, revision, environment, tell)
    except (OSError, ConfigurationError) as error:
        return str(error)


def _run(
    python: str,
    model: str,
    revision: str,
    environment: Mapping[str, str],
    tell: Callable[[Download], None],
) -> str:
    cache = cache_of(environment)
    command = (python, "-c", _PROGRAM, model, revision, str(cache), INDEX, _SINGLE)
    with subprocess.Popen(  # noqa: S603  the plan's own interpreter
        command,
        env={**environment, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            size = _first_line(process.stdout)
            if size:
                _watch(process, _blobs(cache, model), int(json.loads(size)), tell)
            words = process.stderr.read().decode("utf-8", "replace") if process.stderr else ""
        except BaseException:
            process.kill()
            raise
    return cause_of(words, python) if process.returncode else ""


def _first_line(pipe: IO[bytes] | None) -> bytes:
    return pipe.readline() if pipe else b""


def _watch(
    process: subprocess.Popen[bytes], blobs: Path, total: int, tell: Callable[[Download], None]
) -> None:
    """Tell each second how much is there, until the download is over."""
    seen: deque[tuple[float, int]] = deque(maxlen=_RATE_SAMPLES)
    while True:
        now, done = time.monotonic(), min(total, _size_of(blobs))
        seen.append((now, done))
        began, before = seen[0]
        rate = (done - before) / (now - began) if now > began else 0.0
        tell(Download(done, total, max(0.0, rate)))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return


def _blobs(cache: Path, model: str) -> Path:
    return cache / f"models--{model.replace('/', '--')}" / "blobs"


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
