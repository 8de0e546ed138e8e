"""What a model does before it can answer: kept in a file next to the endpoints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.endpoint.address import endpoint_address, endpoint_folder
from lmi_backend.fetch.weights import duration

if TYPE_CHECKING:
    from lmi_backend.fetch.weights import Download

_SHARDS: Final = re.compile(r"checkpoint shards:\s+(\d{1,3})% Completed")
"""vLLM's progress; for an engine that reports none the seconds are shown."""
_ALL: Final = 100
_SUFFIX: Final = ".loading"
_LARGEST: Final = 1 << 16
_RETRY_SECONDS: Final = 5


class Loading(NamedTuple):
    model: str
    text: str
    """What it does, for people."""
    done: int = 0
    """Bytes that are downloaded."""
    total: int = 0
    """Bytes to download; 0 if nothing is downloaded."""
    rate: float = 0.0
    """Bytes a second."""
    seconds_left: float | None = None
    """To the end of the download, if that can be told."""
    loaded: int = -1
    """How much of the weights the engine has read, of 100; -1 if it does not say."""
    seconds: float = 0.0
    """How long the engine has been loading; 0 before."""

    @property
    def retry_seconds(self) -> int:
        """When a client may try again."""
        return max(_RETRY_SECONDS, int(self.seconds_left or 0))

    @property
    def brief(self) -> str:
        """What a client is told: "62 %, about 3 min"; empty if nothing can be told."""
        so_far = f"{duration(self.seconds)} so far" if self.seconds else ""
        if self.loaded >= 0:
            return ", ".join(filter(None, (f"{self.loaded} % of the weights are loaded", so_far)))
        if not self.total:
            return so_far
        percent = f"{100 * self.done // self.total} %"
        if self.seconds_left is None:
            return percent
        return f"{percent}, about {duration(self.seconds_left)}"


class LoadingFile:
    """Keeps the file of a model up to date, until it is closed."""

    def __init__(self, model: str) -> None:
        self._model, self._path = model, endpoint_address(model).with_suffix(_SUFFIX)
        self._lock, self._is_closed = threading.Lock(), False
        self.note(None)

    def note(self, download: Download | None) -> None:
        """Take how far the download is; None when it is over, and the engine loads."""
        if (now := download) is None:
            self._began = time.monotonic()
            self._write(Loading(self._model, "loading the engine"), self._began)
        else:
            figures = now.done, now.total, now.rate, now.seconds_left
            self._write(Loading(self._model, str(now), *figures))

    def say(self, text: str) -> None:
        """Take what is done before the engine starts; nothing when that is over."""
        self._write(Loading(self._model, text)) if text else self.note(None)

    def hear(self, line: str) -> None:
        if match := _SHARDS.search(line):
            loaded = min(100, int(match[1]))
            text = f"loading: {loaded} % of the weights"
            if loaded == _ALL:
                loaded, text = -1, "loading the engine"
            self._write(Loading(self._model, text, loaded=loaded), self._began)

    def close(self) -> None:
        with self._lock:
            # A worker that starts again later tells how far it is, too.
            self._is_closed = True
            self._path.unlink(missing_ok=True)

    def _write(self, now: Loading, began: float = 0.0) -> None:
        draft = self._path.with_suffix(".draft")
        # What cannot be written is not told; the load matters more.
        with self._lock, contextlib.suppress(OSError):
            if self._is_closed:
                return
            values = {**now._asdict(), "began": began, "pid": os.getpid()}
            draft.write_text(json.dumps(values), "utf-8")
            draft.replace(self._path)


def read_loading(base: Path) -> dict[str, Loading]:
    models = {}
    for path in endpoint_folder(base).glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if loading := _read(path):
                models[loading.model] = loading
    return models


def _read(path: Path) -> Loading | None:
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_size > _LARGEST:
        return None
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    is_alive = Path("/proc", str(values.pop("pid"))).exists()
    if began := values.pop("began"):
        # All processes share the clock.
        values["seconds"] = time.monotonic() - began
    return Loading(**values) if is_alive else None
