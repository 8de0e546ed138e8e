"""NVIDIA's perf_analyzer: get it, run it, read what it measured."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debian_package import PackageError, unpacked

from benchmark.measured import Answer, Measured

VERSION = "2.50.0"
"""Of the last wheel of the client that has the program."""
# It, and the CUDA library that the program is linked with.
_WHEELS = (f"tritonclient=={VERSION}", "nvidia-cuda-runtime-cu12==12.9.79")
_LIBRARY = "libb64.so.0d"
_PACKAGE = "libb64-0d"
_ATTEMPTS = 5
_NANOSECONDS = 1e9
_SECONDS = 600


@dataclass(frozen=True)
class Analyzer:
    """The program, and where its libraries are."""

    path: Path
    libraries: str

    def run(self, words: list[str], data: object, concurrency: int, requests: int) -> Measured:
        """Send requests, so many at once, and return what their answers' times say.

        Args:
            words: what is measured: model, address, protocol, streaming.
            data: content of the file of requests.
        """
        with tempfile.TemporaryDirectory() as folder:
            inputs, profile = Path(folder, "inputs.json"), Path(folder, "profile.json")
            inputs.write_text(json.dumps(data), encoding="utf-8")
            command = [str(self.path), *words, "--async", "--input-data", str(inputs)]
            command += ["--concurrency-range", str(concurrency), "--max-threads", "8"]
            command += ["--request-count", str(requests), "--stability-percentage", "999"]
            command += ["--profile-export-file", str(profile)]
            for _ in range(_ATTEMPTS):
                profile.unlink(missing_ok=True)
                output = self._run(command)
                # Now and then it leaves an empty file, or the first part of it.
                with contextlib.suppress(OSError, ValueError):
                    return _read(json.loads(profile.read_text(encoding="utf-8")))
        message = f"perf_analyzer measured nothing:\n{output[-2000:]}"
        raise RuntimeError(message)

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_SECONDS,
            env=os.environ | {"LD_LIBRARY_PATH": self.libraries},
        )
        return done.stdout


def find_perf_analyzer(folder: Path) -> Analyzer:
    """Return the program, downloaded into a folder the first time."""
    path = folder / f"tritonclient-{VERSION}.data" / "data" / "bin" / "perf_analyzer"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", str(folder), *_WHEELS], check=True)
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
            wheel.unlink()
        path.chmod(0o755)
    libraries = [str(folder / "nvidia" / "cuda_runtime" / "lib")]
    if _LIBRARY not in _known_libraries():
        libraries.append(str(_download_library(folder)))
    return Analyzer(path, ":".join(libraries))


def _download_library(folder: Path) -> Path:
    try:
        package = unpacked(_PACKAGE, folder)
    except PackageError as error:
        message = f"perf_analyzer needs {_LIBRARY}: {error}"
        raise SystemExit(message) from error
    return next(package.rglob(_LIBRARY)).parent


def _known_libraries() -> str:
    words = [shutil.which("ldconfig") or "ldconfig", "-p"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _read(profile: dict[str, list[dict[str, list[dict[str, Any]]]]]) -> Measured:
    requests = [each for part in profile["experiments"] for each in part["requests"]]
    return Measured.of(
        [
            Answer(
                each["timestamp"] / _NANOSECONDS,
                [time / _NANOSECONDS for time in each["response_timestamps"]],
            )
            for each in requests
        ]
    )
