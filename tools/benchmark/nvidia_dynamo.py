"""Start NVIDIA's Dynamo: its front end, and its vLLM worker with the engine that is installed.

Its two packages are installed once, apart from the engine's environment, and used by its
interpreter. They find each other through files: no etcd and no NATS.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from overlay import ENGINE, ROOT, OverlayError, run

from benchmark.perf_analyzer import Analyzer
from benchmark.servers import Running, UnavailableError, chat_asks, free_port, process

RELEASE: Final = "1.6.1"
# Without what they require: the engine has most of it, and the rest is for other engines.
_PACKAGES: Final = (
    f"ai-dynamo=={RELEASE}",
    f"ai-dynamo-runtime=={RELEASE}",
    *("redis==8.1.0", "zstandard==0.25.0", "async-timeout==5.0.1"),
)
_SERVERS: Final = Path(__file__).resolve().parent / "dynamo_servers.py"
_KINDS: Final = {"dynamo.frontend": "front end", _SERVERS.name: "worker front end"}


@contextmanager
def dynamo(_: Analyzer) -> Iterator[Running]:
    """Start both, asked for OpenAI's chats on the front end's port."""
    packages, port = installed(ROOT / ".cache"), free_port()
    sizes = ("--max-model-len", "1024", "--max-num-seqs", "256", "--dtype", "float32")
    model = ("--model", str(ROOT / "examples" / "tiny" / "llama"), "--served-model-name", "bench")

    def command(folder: Path) -> list[str]:
        paths = (str(packages), os.environ.get("PYTHONPATH", ""))
        variables = (
            f"PYTHONPATH={os.pathsep.join(filter(None, paths))}",
            f"DYN_FILE_KV={folder / 'found'}",
            "DYN_DISCOVERY_BACKEND=file",
            "DYN_TCP_RPC_HOST=127.0.0.1",
            # As Dynamo's own start of the worker sets it.
            "PYTHONHASHSEED=0",
        )
        words = (str(ENGINE / "bin" / "python"), str(_SERVERS), str(port))
        return ["env", *variables, *words, *model, *sizes, "--enforce-eager"]

    # The front end knows the model when the worker has it.
    with process(command, f"http://127.0.0.1:{port}/v1/models/bench") as started:
        yield Running(chat_asks(f"127.0.0.1:{port}", "bench"), started.pid, _KINDS)


def installed(cache: Path) -> Path:
    """Return the folder with its packages.

    Args:
        cache: the folder that keeps it.

    Raises:
        UnavailableError: If they cannot be had.
    """
    folder = cache / f"dynamo-{RELEASE}"
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as place:
            made = Path(place) / folder.name
            python = str(ENGINE / "bin" / "python")
            options = ("--no-deps", "--quiet", "--target", str(made))
            run(python, "-m", "pip", "install", *options, *_PACKAGES)
            made.rename(folder)
    except (OverlayError, OSError) as error:
        message = f"Dynamo's packages cannot be had: {error}"
        raise UnavailableError(message) from error
    return folder
