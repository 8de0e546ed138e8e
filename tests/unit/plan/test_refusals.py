from dataclasses import replace

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.table.common import ROLLING_BATCH
from lmi_backend.plan.engine_plan import EnginePlan, Launch, Parallel
from lmi_backend.plan.refusals import refuse_unserved

CONFIG = EngineConfig(model="m")
LAUNCH = Launch(python="/p")


def test_mpi_mode_without_mpirun_is_planned_but_not_started() -> None:
    parallel = Parallel(mode="mpi")
    plan = EnginePlan(engine="vllm", config=CONFIG, launch=LAUNCH, parallel=parallel)
    with pytest.raises(ConfigurationError, match="openmpi-bin"):
        refuse_unserved(plan)
    refuse_unserved(replace(plan, parallel=replace(parallel, mpirun="/usr/bin/mpirun")))


def test_several_nodes_need_mpi_or_vllm() -> None:
    parallel = Parallel(nodes=2)
    plan = EnginePlan(engine="transformers", config=CONFIG, launch=LAUNCH, parallel=parallel)
    with pytest.raises(ConfigurationError, match="engine=MPI"):
        refuse_unserved(plan)
    refuse_unserved(replace(plan, engine="vllm"))


def test_a_plan_of_an_engine_that_is_not_here_names_those_that_can_be_chosen() -> None:
    plan = EnginePlan(engine="gone", config=CONFIG, launch=LAUNCH)
    with pytest.raises(
        ConfigurationError, match=r"engine gone: .* vllm, lmi-dist, trtllm"
    ) as error:
        refuse_unserved(plan)
    words = str(error.value).rpartition(": ")[2].split(", ")
    assert [ROLLING_BATCH.kind.parse(word) for word in words] == words
