"""Report the load of two copies of a model as vLLM does; write what we make of it, as JSON.

Runs in the engine's Python.
"""

import json
import sys
from collections import Counter
from types import SimpleNamespace

from vllm.v1.metrics.loggers import StatLoggerManager
from vllm.v1.metrics.stats import SchedulerStats

from lmi_backend.engines.vllm import compat
from lmi_backend.engines.vllm.processor import LastStats

REPORTS = ((0, 200, 40, 0.97), (1, 7, 0, 0.02), (1, 3, 0, 0.02))
"""Copy, requests that run and wait, share of its KV cache."""


def main() -> None:
    last = LastStats()
    logger = StatLoggerManager(None, [0, 1], last.loggers(), enable_default_loggers=False)
    alone = []
    for copy, running, waiting, usage in REPORTS:
        stats = SchedulerStats(
            num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage
        )
        logger.record(stats, None, engine_idx=copy)
        alone.append(last.value)
    counts = Counter({b"\0\0": 240, b"\1\0": 3})
    core = SimpleNamespace(
        engine_inflight=counts, engine_ranks_managed=[0, 1], core_engines=[b"\0\0", b"\1\0"]
    )
    copies = last.copies(compat.requests_of_copies(SimpleNamespace(engine_core=core)))
    one = compat.requests_of_copies(SimpleNamespace(engine_core=SimpleNamespace()))
    seen = [[each.running, each.waiting, each.kv_cache_usage, each.steps] for each in alone]
    json.dump([seen, copies, one, len(logger.stat_loggers)], sys.stdout)


if __name__ == "__main__":
    main()
