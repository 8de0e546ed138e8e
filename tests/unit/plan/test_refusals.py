from dataclasses import replace

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.refusals import refuse_unserved


def test_mpi_mode_without_mpirun_is_planned_but_not_started() -> None:
    plan = EnginePlan(engine="vllm", model="m", python="/p", mode="mpi")
    with pytest.raises(ConfigurationError, match="openmpi-bin"):
        refuse_unserved(plan)
    refuse_unserved(replace(plan, mpirun="/usr/bin/mpirun"))


def test_several_nodes_need_mpi_or_vllm() -> None:
    plan = EnginePlan(engine="transformers", model="m", python="/p", nodes=2)
    with pytest.raises(ConfigurationError, match="engine=MPI"):
        refuse_unserved(plan)
    refuse_unserved(replace(plan, engine="vllm"))
