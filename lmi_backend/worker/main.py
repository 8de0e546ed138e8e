"""The worker process: one engine, or one rank of it, which its stub uses over a socket.

Started as `python -m lmi_backend.worker.main --connect SOCKET` by the stub, or by mpirun for the
stub. Its log is its standard error, which the stub copies into Triton's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine

from lmi_backend.errors import ConfigurationError, WorkerError
from lmi_backend.files import secure_caches
from lmi_backend.ipc.environment import GROUP_VARIABLE, SAFE_PATH_VARIABLE, TOKEN_VARIABLE
from lmi_backend.ipc.handshake import join
from lmi_backend.ipc.shared_memory import remove_shared_memory
from lmi_backend.threads import expect_growth
from lmi_backend.worker.conversation import Conversation
from lmi_backend.worker.logs import configure_logs
from lmi_backend.worker.starting import network_variables, torch_variables
from lmi_backend.worker.survival import Survival

_log = logging.getLogger(__name__)

# Engines may hang in their own shutdown; the worker must be gone soon all the same.
_CLOSE_SECONDS = 8.0


def main() -> None:
    """Serve until told to stop or until the stub is gone, and no other takes its place."""
    parser = argparse.ArgumentParser(description="Worker process of lmi-backend.")
    parser.add_argument(
        "--connect", required=True, metavar="ADDRESS", help="the stub's: a Unix socket or host:port"
    )
    arguments = parser.parse_args()
    try:
        # The stub has looked at those of its machine; this rank may be on another.
        secure_caches(os.environ)
    except ConfigurationError as error:
        sys.exit(str(error))
    token = os.environ.pop(TOKEN_VARIABLE, "")
    os.environ.pop(SAFE_PATH_VARIABLE, None)
    rank_variables = torch_variables(os.environ)
    os.environ.update(rank_variables)
    for name, value in network_variables(os.environ).items():
        os.environ.setdefault(name, value)
    configure_logs()
    if rank_variables:
        rank, ranks = rank_variables["RANK"], rank_variables["WORLD_SIZE"]
        _log.info("rank %s of %s is on %s", rank, ranks, socket.gethostname())
    rank_number = int(rank_variables.get("RANK", 0))
    _loop_runner()(_serve_and_leave(arguments.connect, token, rank_number))


def _loop_runner() -> Callable[[Coroutine[None, None, None]], None]:
    """Return what runs an event loop: uvloop's takes a tenth less CPU a token; vLLM brings it."""
    try:
        import uvloop  # noqa: PLC0415  not every engine's environment has it
    except ImportError:
        return asyncio.run
    run: Callable[[Coroutine[None, None, None]], None] = uvloop.run
    return run


async def _serve_and_leave(address: str, token: str, rank: int) -> None:
    # Not after the loop's end: that waits for an engine that still loads, maybe for other machines.
    try:
        status = await _serve(address, token, rank)
    except Exception:  # noqa: BLE001  else the loop waits for the engine
        _log.exception("the worker failed")
        status = 1
    _leave(status)


async def _serve(address: str, token: str, rank: int) -> int:
    try:
        reader, writer = await join(address, token, rank)
    except (WorkerError, OSError) as error:
        _log.error("%s", error)
        return 1
    survival = Survival(token, rank)
    conversation = Conversation(reader, writer, rank)
    try:
        status = await _converse(conversation)
        while streams := await survival.next_stub(conversation):
            conversation = Conversation(*streams, rank, conversation.loaded)
            status = await _converse(conversation)
        return status
    finally:
        closing = asyncio.create_task(conversation.close())
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)


async def _converse(conversation: Conversation) -> int:
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, conversation.stop)
    return await conversation.run()


def _leave(status: int) -> None:
    """End, with every process the engine may have left behind.

    The stub and mpirun start each process as leader of its own group, so the group is the
    engine's processes.
    """
    # Of a stub that has died nobody reads them.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    remove_shared_memory(os.environ.get(GROUP_VARIABLE, ""))
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGTERM)
    # No interpreter shutdown: an engine's threads may block it.
    os._exit(status)


# Processes that an engine spawns import the program's main module before their own, so named.
if __name__ in ("__main__", "__mp_main__"):
    expect_growth()

if __name__ == "__main__":
    main()
