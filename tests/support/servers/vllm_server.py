"""vLLM's own server, a process of its own."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from tests.support.run.places import ENGINE_PYTHON, TINY
from tests.support.run.ports import free_ports
from tests.support.run.spending import ENGINES, started
from tests.support.run.waiting import HANG_SECONDS, wait_for


@contextlib.contextmanager
def vllm_server(log: Path, *flags: str) -> Iterator[str]:
    """Start vLLM's own server with the tiny model until the block ends; yield its URL at once."""
    (port,) = free_ports(1)
    model = ["--model", str(TINY / "llama"), "--served-model-name", "tiny", "--enforce-eager"]
    sizes = ["--max-model-len", "1024", "--max-num-seqs", "64", "--dtype", "float32"]
    command = [str(ENGINE_PYTHON), "-m", "vllm.entrypoints.openai.api_server", *model, *sizes]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, *address, *flags], stdout=file, stderr=file)
    started[ENGINES] += 1
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


def wait_until_ready(url: str) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError), urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    wait_for(answers)
