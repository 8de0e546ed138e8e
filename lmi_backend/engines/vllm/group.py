"""What makes this process one of vLLM's ranks, if mpirun started it as one."""

from __future__ import annotations

import os
from typing import Any


def group_arguments() -> dict[str, Any]:
    """Return vLLM's arguments of a rank, and set what it reads nowhere else; none outside a group.

    vLLM must not have been used yet.
    """
    if "RANK" not in os.environ:
        return {}
    # Each rank has its core in this process.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return {"distributed_executor_backend": "external_launcher"}


def is_rank() -> bool:
    """Tell whether this process is one of a group."""
    return "RANK" in os.environ
