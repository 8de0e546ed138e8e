"""How a worker's process ends."""

import subprocess
import sys

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
