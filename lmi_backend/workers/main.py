"""The worker process: one engine, spoken to over a Unix socket.

Started as `python -m lmi_backend.workers.main --connect SOCKET` by the stub. Its log is its
standard error, which the stub copies into Triton's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys

from lmi_backend.workers.command import TOKEN_VARIABLE
from lmi_backend.workers.session import WorkerSession

# Engines may hang in their own shutdown; the worker must be gone soon all the same.
_CLOSE_SECONDS = 8.0


def main() -> None:
    """Serve until told to stop or until the stub is gone."""
    parser = argparse.ArgumentParser(description="Worker process of lmi-backend.")
    parser.add_argument(
        "--connect", required=True, metavar="SOCKET", help="Unix socket of the stub"
    )
    arguments = parser.parse_args()
    token = os.environ.pop(TOKEN_VARIABLE, "")
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
    )
    status = asyncio.run(_serve(arguments.connect, token))
    _leave(status)


async def _serve(address: str, token: str) -> int:
    reader, writer = await asyncio.open_unix_connection(address)
    session = WorkerSession(reader, writer)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, session.stop)
    try:
        return await session.run(token)
    finally:
        closing = asyncio.create_task(session.close())
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)


def _leave(status: int) -> None:
    """End, with every process the engine may have left behind.

    The stub starts a worker as leader of its own group, so the group is the engine's processes.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGTERM)
    # No interpreter shutdown: an engine's threads may block it.
    os._exit(status)


if __name__ == "__main__":
    main()
