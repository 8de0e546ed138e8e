"""Triton's vLLM backend from a checkout, in a stub of Triton's Python backend; a benchmark's peer.

Nothing of its code is here. What today's vLLM needs for it to start is done first, and the report
names it: `PATCHES`. Its stub's numpy must be older than 2, so the engine's packages come last.
"""

import importlib
import locale
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

# A stub has the C locale, in which vLLM cannot read its own files.
locale.setlocale(locale.LC_ALL, "C.UTF-8")
sys.path.insert(0, str(Path(os.environ["BENCH_VLLM_BACKEND"], "src")))
sys.path.append(os.environ["BENCH_ENGINE_PACKAGES"])
# Programs that vLLM starts run in the environment of its own.
sys.executable = os.environ["BENCH_ENGINE_PYTHON"]
multiprocessing.set_executable(sys.executable)
# vLLM starts its core as another program, since torch may have threads.
os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
os.environ["PYTHONPATH"] = os.environ["BENCH_PACE"]
sys.path.append(os.environ["BENCH_PACE"])

sys.modules["vllm.inputs.data"] = importlib.import_module("vllm.inputs")
loggers: Any = importlib.import_module("vllm.v1.metrics.loggers")
if not hasattr(loggers, "build_1_2_5_buckets"):
    loggers.build_1_2_5_buckets = lambda largest: [1, 2, 5, largest]

# Its module has the name of this one, which the stub may have by another.
_code = Path(os.environ["BENCH_VLLM_BACKEND"], "src", "model.py").read_text(encoding="utf-8")
exec(compile(_code, "vllm_backend/src/model.py", "exec"), globals())  # noqa: S102
