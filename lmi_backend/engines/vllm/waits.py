"""How vLLM's processes wait for each other: those that compute on the CPU sleep now and then.

A core and its workers ask in a loop whether the other has written, and yield each time. On Linux
6.18 whatever else is to run on a CPU whose processes yield so fast may wait for seconds: the tokens
of a stream come with its end. A sleep after some yields ends that (benchmarks/README.md has what it
costs). Who has nothing to do asks on for a second, in which it takes a core from those that have:
here it soon waits for the message that vLLM sends with each write. On a GPU, where a sleep of 50 µs
would be more of a step, vLLM's way stays.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from typing import Final

from vllm.distributed.device_communicators import shm_broadcast
from vllm.platforms import current_platform

_YIELDS: Final = 64
"""From one sleep to the next: a fraction of a millisecond."""
_ASKING_SECONDS: Final = 0.01
"""After the last message: more than the pause between two steps, less than between two requests."""
_num_yields = itertools.count(1)


def install() -> None:
    """Have this process wait so, if its model is on the CPU."""
    if current_platform.is_cpu():
        shm_broadcast.sched_yield = _give_way
        # Older releases have none.
        if condition := getattr(shm_broadcast, "SpinCondition", None):
            patient = functools.partial(condition, busy_loop_s=_ASKING_SECONDS)
            shm_broadcast.SpinCondition = patient


def _give_way() -> None:
    if next(_num_yields) % _YIELDS:
        os.sched_yield()
    else:
        time.sleep(0)
