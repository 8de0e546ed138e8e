"""What a worker logs reaches its standard error whatever an engine makes of the root logger."""

import subprocess
import sys

PROGRAM = """
import logging
from lmi_backend.worker.logs import configure_logs, restore_logs
own, users = logging.getLogger("lmi_backend.worker.main"), logging.getLogger("model")
configure_logs()
root = logging.getLogger()
root.setLevel(logging.ERROR)  # as an engine's import
own.info("own, meanwhile")
users.info("user's, meanwhile")
for handler in root.handlers:
    handler.setLevel(logging.ERROR)
restore_logs()
own.info("own, then")
users.info("user's, then")
"""


def test_an_engine_does_not_silence_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == [
        "INFO lmi_backend.worker.main: own, meanwhile",
        "INFO lmi_backend.worker.main: own, then",
        "INFO model: user's, then",
    ]
