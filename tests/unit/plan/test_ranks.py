"""How an engine in Python mode spans several nodes."""

import pytest

from lmi_backend.plan.engine_plan import Explanation
from lmi_backend.plan.ranks import executor
from tests.support.records.plans import options_of

VLLM = "option.rolling_batch=vllm\n"
OWN = f"{VLLM}option.distributed_executor_backend=mp\n"


def arguments(text: str, nodes: int, leader: str) -> dict[str, str | int]:
    return executor(options_of(text), {"DJL_LEADER_ADDR": leader}, nodes, Explanation())


@pytest.mark.parametrize(
    ("text", "nodes", "made"),
    [
        (VLLM, 1, {}),
        (VLLM, 2, {"distributed_executor_backend": "ray"}),
        # MPI starts the ranks, on each node.
        (f"engine=MPI\n{VLLM}", 2, {}),
        ("engine=Python\noption.rolling_batch=trtllm", 2, {}),
        # What the user gives is passed on as it is.
        (f"{VLLM}option.distributed_executor_backend=ray", 2, {}),
        (f"{OWN}option.nnodes=2", 2, {}),
        (OWN, 1, {}),
        (OWN, 2, {"nnodes": 2, "node_rank": 0, "master_addr": "first", "master_port": 29501}),
        (
            f"{OWN}option.master_addr=other\noption.master_port=7",
            3,
            {"nnodes": 3, "node_rank": 0, "master_addr": "other", "master_port": 7},
        ),
    ],
)
def test_several_nodes_need_ray_or_the_engines_own_processes(
    text: str, nodes: int, made: dict[str, str | int]
) -> None:
    assert arguments(text, nodes, "first") == made
