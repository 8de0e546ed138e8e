"""The words of the benchmark, and its end."""

import argparse
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from bench import peer_of

from tests.support.run.places import ROOT
from tests.support.run.waiting import HANG_SECONDS, wait_for

MEASURES_FOR_LONG = """
import sys, time, bench
from benchmark.servers import process

def measure(*_):
    with process(lambda folder: ["sleep", "600"]) as server:
        print(server.pid, flush=True)
        time.sleep(600)
        yield

bench.measure, bench.find_perf_analyzer = measure, lambda folder: folder
bench.main(["--targets", "echo", "--output", sys.argv[1]])
"""


@pytest.mark.parametrize("text", ["mine", "mine=http:host:1/m", "=openai:host:1/m", "a=triton:h:1"])
def test_a_peer_in_wrong_words_is_explained(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=PROTOCOL:HOST:PORT/MODEL"):
        peer_of(text)


def test_what_is_told_to_end_leaves_no_server(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MEASURES_FOR_LONG, str(tmp_path)],
        cwd=ROOT / "tools",
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        pid = next(int(line) for line in run.stdout if line.strip().isdigit())
        run.terminate()
        assert run.wait(HANG_SECONDS) == 128 + 15
    wait_for(lambda: not psutil.pid_exists(pid))
