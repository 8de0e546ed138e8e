"""A plugin of vLLM: each step of the engine takes at least so long, as on a GPU it waits for.

A CPU then has little to do for the engine, and what servers add to it can be told apart.
"""

from __future__ import annotations

import os
import time
from functools import wraps
from typing import Any

VARIABLE = "LMI_BENCH_STEP_SECONDS"


def register() -> None:
    """Wrap the forward pass of the model that is measured; vLLM calls this in each process."""
    seconds = float(os.environ.get(VARIABLE) or 0)
    if not seconds:
        return
    from vllm.model_executor.models.llama import LlamaForCausalLM  # noqa: PLC0415

    forward = LlamaForCausalLM.forward

    @wraps(forward)
    def paced(self: Any, *args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        return forward(self, *args, **kwargs)

    LlamaForCausalLM.forward = paced
