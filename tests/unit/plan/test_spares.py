"""Whether a spare loads the model before it is needed."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.plan.engine_plan import Parallel
from lmi_backend.plan.spares import SpareFacts

MEMORY: Any = SimpleNamespace(weights=5, kv_cache=2)
FULL: Any = SimpleNamespace(weights=5, kv_cache=-1)


@pytest.mark.parametrize(
    ("facts", "parallel", "loaded"),
    [
        (SpareFacts(MEMORY, 1, (), has_code=False), Parallel(), 7),
        (SpareFacts(FULL, 1, (), has_code=False), Parallel(), 5),
        (SpareFacts(MEMORY, 1, ("seed",), has_code=False), Parallel(tensor_parallel_degree=2), 14),
        (SpareFacts(MEMORY, 1, (), has_code=False), Parallel(device_groups=(("0",),)), 0),
        (SpareFacts(None, 1, (), has_code=False), Parallel(), 0),
        (SpareFacts(MEMORY, 2, (), has_code=False), Parallel(), 0),
        (SpareFacts(MEMORY, 1, ("kv_transfer_config",), has_code=False), Parallel(), 0),
        (SpareFacts(MEMORY, 1, ("kv_events_config",), has_code=False), Parallel(), 0),
    ],
)
def test_it_takes_no_device_and_no_port(facts: SpareFacts, parallel: Parallel, loaded: int) -> None:
    assert facts.loaded_bytes(parallel) == loaded
