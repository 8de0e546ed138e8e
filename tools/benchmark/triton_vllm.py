"""Start Triton's vLLM backend, from a checkout of it, on the tritonserver that we run on."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmark import plain_triton

REPOSITORY: Final = "github.com/triton-inference-server/vllm_backend"
CHECKOUT: Final = "LMI_BENCH_VLLM_BACKEND"
"""Variable with the folder of the checkout."""
PATCHES: Final = (
    "the module vllm.inputs.data is vllm.inputs today; build_1_2_5_buckets is gone from "
    "vllm.v1.metrics.loggers; a stub's locale and sys.executable are those of the engine's Python"
)
"""What its code needs to run beside today's vLLM."""
_MODEL: Final = Path(__file__).resolve().parent / "vllm_backend" / "model.py"
_CONFIG: Final = 'backend: "python"\ninstance_group [{count: 1, kind: KIND_MODEL}]\n'


def checkout() -> Path:
    """Return the folder of the checkout.

    Raises:
        SystemExit: none is named, or it is none.
    """
    folder = Path(os.environ.get(CHECKOUT) or "")
    if not (folder / "src" / "model.py").is_file():
        accepted = f"a checkout of {REPOSITORY}, whose src/model.py is run"
        message = (
            f"--vllm-backend: {os.environ.get(CHECKOUT) or 'is not given'}; wanted: {accepted}"
        )
        raise SystemExit(message)
    return folder


def note() -> str:
    """Return what a reader of the figures must know: which code ran, and what was done to it."""
    words = ["git", "-C", str(checkout()), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return f"Triton's vLLM backend is {REPOSITORY} {commit}, run by these changes: {PATCHES}"


def prepare(folder: Path, arguments: Mapping[str, Any], python: Path, pace: Path) -> list[str]:
    """Write a model repository; return the server's words, without its ports.

    Args:
        folder: an empty one.
        arguments: of vLLM's engine.
        python: of the engine's environment.
        pace: folder of the plugin that keeps the pace.
    """
    version = plain_triton.write_model(folder, _MODEL, _CONFIG)
    (version / "model.json").write_text(json.dumps(arguments), encoding="utf-8")
    packages = sysconfig.get_path("purelib", vars={"base": str(python.parent.parent)})
    environment = {
        "BENCH_VLLM_BACKEND": str(checkout()),
        "BENCH_ENGINE_PACKAGES": packages,
        "BENCH_ENGINE_PYTHON": str(python),
        "BENCH_PACE": str(pace),
    }
    return plain_triton.words(folder, environment)
