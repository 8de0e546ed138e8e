"""vLLM on the machines after the first, where it spans several without Ray and MPI.

vLLM's own headless mode runs in a process of its own, as it wants a main thread. It does not notice
when the first machine is gone. This module does, and exits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from typing import TYPE_CHECKING, Final

from lmi_backend.engines.protocol import Rank
from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.options.signature import installed_version

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from lmi_backend.engine_config import EngineConfig

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5
_END_SECONDS: Final = 5.0
# A machine that loses its power says no goodbye: silence of 10 s, then three questions.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class VllmNode(Rank):
    """This machine's part of a model; the first machine has the engine."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._process: BaseProcess | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> Capabilities:
        import multiprocessing  # noqa: PLC0415  it makes a module of the program's

        # Ready at once: whether all have come together, the first machine knows.
        process = multiprocessing.get_context("spawn").Process(target=_run, args=(self._config,))
        process.start()
        self._process = process
        arguments = self._config.arguments
        self._watch = asyncio.create_task(
            _outlive(str(arguments["master_addr"]), int(arguments["master_port"]))
        )
        return Capabilities("vllm", installed_version("vllm", sys.executable), 0)

    async def check_health(self) -> None:
        if self._process is not None and not self._process.is_alive():
            raise EngineDeadError(f"vLLM on this machine exited with {self._process.exitcode}")
        if self._watch is not None and self._watch.done():
            raise EngineDeadError("the model's first machine is gone; it is joined again")

    async def close(self) -> None:
        process, self._process = self._process, None
        if self._watch is not None:
            self._watch.cancel()
        if process is not None:
            process.terminate()
            await asyncio.to_thread(process.join, _END_SECONDS)


async def _outlive(host: str, port: int) -> None:
    """Return when torch's store, which the first machine's engine keeps, was there and is gone."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            break
        except OSError:
            await asyncio.sleep(_RETRY_SECONDS)
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, seconds)
    _log.info("joined the model at %s, port %d", host, port)
    try:
        # The store says nothing by itself.
        while await reader.read(1 << 10):
            pass
    except OSError as error:
        _log.info("the first machine cannot be reached: %s", error)
    finally:
        writer.close()


def _run(config: EngineConfig) -> None:
    from lmi_backend.engines.vllm.inside import compat  # noqa: PLC0415  only in this process
    from lmi_backend.engines.vllm.inside.arguments import engine_args  # noqa: PLC0415
    from lmi_backend.engines.vllm.inside.starting import before_loading  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    before_loading(config)
    compat.run_headless(engine_args(config))
