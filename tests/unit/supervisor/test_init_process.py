"""`serve` as process 1 of a container, which every orphan becomes a child of."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.run.waiting import HANG_SECONDS, wait_for

# Orphans come to a subreaper as they do to process 1 of a PID namespace.
TEXT = """
import ctypes, os, signal, subprocess, sys, time
from lmi_backend.supervisor.stop import leave_init_behind
ctypes.CDLL(None).prctl(36, 1)
init, number = os.getpid(), os.getpid
os.getpid = lambda: 1 if number() == init else number()
leave_init_behind()
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(5)"])
orphan = subprocess.check_output("sleep 0.1 >&2 & echo $!", shell=True)
print(os.getsid(0) == number(), number(), int(orphan), flush=True)
while not ended:
    time.sleep(0.01)
# Its own status is not taken from who started it.
assert own.wait() == 5
if sys.argv[1] == "killed":
    os.kill(number(), signal.SIGKILL)
sys.exit(7)
"""


@pytest.mark.parametrize(("how", "status"), [("ends", 7), ("killed", 128 + signal.SIGKILL)])
def test_it_reaps_hands_signals_on_and_ends_as_serve_does(how: str, status: int) -> None:
    command = [sys.executable, "-c", TEXT, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as init:
        assert init.stdout is not None
        leads_session, served, orphan = init.stdout.readline().split()
        assert leads_session == "True"
        assert psutil.Process(int(served)).ppid() == init.pid
        wait_for(lambda: not psutil.pid_exists(int(orphan)))
        init.send_signal(signal.SIGTERM)
        assert init.wait(HANG_SECONDS) == status
