import json
from dataclasses import replace
from pathlib import Path

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import ConfigurationError, PlanError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan.engine_plan import EnginePlan, Launch, Parallel
from lmi_backend.plan.refusals import refuse_old_engine, refuse_unserved

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


@pytest.mark.parametrize(
    ("engine", "package", "version", "problem"),
    [
        ("vllm", "vllm", "0.6.3.post1", "vLLM 0.6.3.post1 of .* is too old: .*; accepted: 0.11 or"),
        ("trtllm", "tensorrt_llm", "0.9.0", "TensorRT-LLM 0.9.0 of .* is too old"),
        ("vllm", "vllm", "0.11.0", ""),
        ("vllm", "vllm", "1.0", ""),
        ("vllm", "vllm", "0.1.dev1+g12ab", ""),
    ],
)
def test_a_library_that_is_too_old_is_refused_by_its_version(
    tmp_path: Path, engine: str, package: str, version: str, problem: str
) -> None:
    """Whatever else of it can be read."""
    folder = tmp_path / package
    folder.mkdir()
    for name in ("_version.py", "version.py"):
        (folder / name).write_text(f'__version__ = version = "{version}"\n', encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps([str(folder)])}'\n", encoding="utf-8")
    python.chmod(0o755)
    lines = parse_properties(f"option.rolling_batch={engine}")
    options = resolve_options(lines, {}, folder=tmp_path)
    if not problem:
        refuse_old_engine(options, str(python))
        return
    with pytest.raises(PlanError, match=problem):
        refuse_old_engine(options, str(python))
