"""What the doctor says of the vLLM that is installed, whose source alone it reads."""

import os
import subprocess

from lmi_backend.cli.doctor_fast_paths import fast_paths
from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS
from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.signature import installed_version
from tests.support.places import ENGINE_PYTHON, ROOT

VLLM = implementations()["vllm"]
RUN = (
    "import runpy, sys; runpy.run_module(sys.argv[1], run_name='__main__'); "
    "print(); print(*{'vllm', 'torch'} & {*sys.modules})"
)


def test_it_finds_every_fast_path_and_all_that_a_model_needs() -> None:
    found = fast_paths(VLLM, str(ENGINE_PYTHON))
    assert found.report is not None, found.problem
    assert found.report.version == installed_version("vllm", str(ENGINE_PYTHON))
    assert [fast_path.name for fast_path in found.report.fast_paths] == [
        fast_path.name for fast_path in PATHS
    ]
    assert [need.name for need in found.report.needs] == [need.name for need in NEEDS]
    assert not [need for need in found.report.needs if need.missing]
    assert found.count() == (len(PATHS), len(PATHS))


def test_it_imports_nothing_of_vllm() -> None:
    done = subprocess.run(
        [str(ENGINE_PYTHON), "-c", RUN, VLLM.probes],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    table, loaded = done.stdout.splitlines()
    assert table.startswith("{")
    assert loaded == ""
