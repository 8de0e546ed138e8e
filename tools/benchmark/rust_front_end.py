"""Start vLLM's server with its Rust front end, whose program only vLLM's CUDA wheels hold.

The wheel of the installed release is downloaded once; the program alone is kept. It serves the
engine that is installed, on a CPU too.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from overlay import (
    ENGINE,
    OverlayError,
    download,
    metadata_of,
    packages_of,
    version_in,
    write_metadata,
)

from benchmark.servers import UnavailableError

_PROGRAM: Final = "vllm/vllm-rs"
_MAIN: Final = "vllm.entrypoints.cli.main"
KINDS: Final = {"vllm-rs": "server front end", _MAIN: "its parent"}
"""Classes of its processes, by their command lines."""


def words(cache: Path) -> list[str]:
    """Return the command that serves with it, without arguments of the server.

    Args:
        cache: the folder that keeps the program.

    Raises:
        UnavailableError: If the program cannot be had.
    """
    try:
        folder = _folder(cache)
    except (OverlayError, OSError, KeyError) as error:
        message = f"vLLM's CUDA wheel, which holds the program, cannot be had: {error}"
        raise UnavailableError(message) from error
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    variables = (
        f"PYTHONPATH={os.pathsep.join(filter(None, paths))}",
        "VLLM_USE_RUST_FRONTEND=1",
        f"VLLM_RUST_FRONTEND_PATH={folder / _PROGRAM}",
    )
    return ["env", *variables, str(ENGINE / "bin" / "python"), "-m", _MAIN, "serve"]


def _folder(cache: Path) -> Path:
    """Return a folder with the program, and with metadata that `vllm serve` looks for."""
    release = version_in(metadata_of(packages_of(ENGINE)))
    folder = cache / f"vllm-rs-{release}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as place:
        made = Path(place) / folder.name
        with download(release, Path(place)) as wheel:
            Path(wheel.extract(_PROGRAM, made)).chmod(0o755)
        write_metadata(made, release)
        made.rename(folder)
    return folder
