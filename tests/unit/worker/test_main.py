"""How a worker's process ends."""

import os
import subprocess
import sys

import pytest

# An engine that loads for ever, as one does that waits for other machines.
_WORKER = """
import asyncio, sys, time
from lmi_backend.worker import main
async def serve(*_):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    return 3
main._serve = serve
sys.argv = ["worker", "--connect", "nowhere"]
main.main()
"""


def test_a_worker_leaves_although_its_engine_still_loads() -> None:
    command = [sys.executable, "-c", _WORKER]
    done = subprocess.run(command, check=False, timeout=60, start_new_session=True)
    # The signal to its group ignores itself.
    assert done.returncode == 3


@pytest.mark.parametrize(("unbuffered", "status"), [("", 3), ("1", 1)])
def test_a_worker_leaves_although_nobody_reads_what_it_prints(unbuffered: str, status: int) -> None:
    """Its stub has died; with PYTHONUNBUFFERED the engine's own words raise."""
    printing = _WORKER.replace("return 3", "print('unread')\n    return 3")
    with subprocess.Popen(
        [sys.executable, "-c", f"input()\n{printing}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.close()
        worker.communicate(b"\n")
    assert worker.returncode == status
