"""Kill vLLM's worker or its core under 32 streams, again and again, and time the pauses.

    python tools/pauses.py --kills 100 --report tests/chaos/results.md            about half an hour
    python tools/pauses.py --server --kills 10 --report tests/chaos/results.md    about five minutes

Kills are at random times, those of a worker after it has a spare again. With --server the stub and
tritonserver are killed in turn, and the worker outlives them. Its table in the page is replaced.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from install import ROOT

sys.path.insert(0, str(ROOT))
from tests.support import pauses
from tests.support.measured import replace_part, rows
from tests.support.places import ENGINE_PYTHON, TINY
from tests.support.serving import serve, write_properties

_PROPERTIES = {
    "option.rolling_batch": "vllm",
    "option.model_id": TINY / "llama",
    "option.pythonExecutable": ENGINE_PYTHON,
    "option.dtype": "fp32",
    "option.max_model_len": 1024,
    "option.max_rolling_batch_size": 64,
    "option.enforce_eager": "true",
    "option.env": "VLLM_CPU_KVCACHE_SPACE=1",
    # Deaths that follow each other for half an hour are no reason to give up here.
    "retry_threshold": 1_000_000,
}


def main() -> None:
    """Measure, and write the row."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="how many (100)")
    parser.add_argument("--server", action="store_true", help="kill the stub and tritonserver")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of victims and times")
    parser.add_argument("--report", type=Path, help="the page whose row is to be replaced")
    parser.add_argument("--folder", type=Path, help="keep the server's log here")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with tempfile.TemporaryDirectory(prefix="pauses-") as own:
        folder = options.folder or Path(own)
        kill = pauses.kill_the_server if options.server else pauses.kill_again_and_again
        spares = {"option.spare_workers": int(not options.server)}
        model = write_properties(folder / pauses.MODEL, _PROPERTIES | spares)
        with serve([model], folder) as served:
            seen = kill(served, options.kills, _say, options.seed)
    _say(" | ".join(seen.row()))
    if options.report:
        name = f"pauses-of-{'server' if options.server else 'worker'}"
        replace_part(options.report, name, rows("fault", "what was seen", of=[seen.row()]))


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
