"""A further machine of a model; tests/integration/test_nodes.py runs one."""

from pathlib import Path

import pytest

from lmi_backend.cli.join import on_node
from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import ConfigurationError
from lmi_backend.plan.engine_plan import EnginePlan, Launch
from tests.support.servers.serving import write_properties
from tests.unit.cli.conftest import Command

TWO = EnginePlan(
    engine="vllm",
    config=EngineConfig(model="m", arguments={"nnodes": 2, "node_rank": 0, "master_addr": "a"}),
    launch=Launch(python="python"),
)


def test_a_further_machine_has_its_number() -> None:
    arguments = on_node(TWO, 1).config.arguments
    assert arguments == {"nnodes": 2, "node_rank": 1, "master_addr": "a"}


@pytest.mark.parametrize("rank", [-1, 0, 2])
def test_a_number_that_is_none_of_theirs_is_refused(rank: int) -> None:
    with pytest.raises(ConfigurationError, match=f"--node-rank {rank}; accepted: 1 to 1"):
        on_node(TWO, rank)


@pytest.mark.parametrize(
    ("index", "words", "message"),
    [
        ("", [], "--node-rank is missing, and LWS_WORKER_INDEX is not set"),
        ("1", [], "does not span machines by vLLM itself; accepted: option.distributed_executor"),
        ("", ["--node-rank", "1"], "does not span machines by vLLM itself"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    index: str,
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
) -> None:
    write_properties(tmp_path, {"option.rolling_batch": "echo"})
    monkeypatch.setenv("LWS_WORKER_INDEX", index)
    assert message in command("join", tmp_path, *words, status=2).err
