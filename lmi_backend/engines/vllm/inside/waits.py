"""How vLLM's processes wait for each other: those that compute on the CPU sleep now and then.

A core and its workers poll in a loop whether the other has written, and yield each time. On Linux
6.18 other processes of a CPU whose processes yield so fast may wait for seconds: the tokens of a
stream arrive only when it is finished. A sleep after some yields cures that (benchmarks/README.md
has what it costs). An idle process polls for another second, and takes a core from the busy ones.
Here it soon waits for the message that vLLM sends with each write. On a GPU a sleep of 50 µs would
be more of a step, so vLLM's way stays.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import time
from typing import Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, names, single_process

_YIELDS: Final = 64
"""From one sleep to the next: a fraction of a millisecond."""
_ASKING_SECONDS: Final = 0.01
"""After the last message: more than the pause between two steps, less than between two requests."""
_num_yields = itertools.count(1)


def install() -> None:
    """Have this process wait so, if its model is on the CPU."""
    single_process.look()
    fast_paths.probe("waits", "the calls by which vLLM's processes wait for each other", _install)


def _install() -> None:
    if not names.current_platform.is_cpu():
        return
    shm_broadcast = names.shm_broadcast
    if not callable(getattr(shm_broadcast, "sched_yield", None)):
        raise TypeError("sched_yield is no function")
    # Older releases have none.
    if condition := getattr(shm_broadcast, "SpinCondition", None):
        inspect.signature(condition).bind_partial(busy_loop_s=_ASKING_SECONDS)
        shm_broadcast.SpinCondition = functools.partial(_condition, condition)
    shm_broadcast.sched_yield = _give_way


def _condition(condition: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a condition; vLLM's own once this is off, even before this process's fork."""
    chosen = {"busy_loop_s": _ASKING_SECONDS} if fast_paths.is_on("waits") else {}
    return condition(*args, **chosen, **kwargs)


def _give_way(*_: Any, **__: Any) -> None:
    """Yield, or sleep; arguments of other releases change nothing."""
    if not fast_paths.is_on("waits") or next(_num_yields) % _YIELDS:
        os.sched_yield()
    else:
        time.sleep(0)
