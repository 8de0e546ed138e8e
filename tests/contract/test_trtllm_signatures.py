"""The double of TensorRT-LLM has the recorded signatures of the real one.

On a machine that has the real library, tools/verify_trtllm.sh runs this same file against it:
LMI_BACKEND_REAL_TRTLLM, set to its interpreter, leaves the double out.
"""

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
RECORD = json.loads((TESTS / "data" / "signatures" / "trtllm.json").read_text("utf-8"))
SHARED = "OMPI_MCA_btl_sm_backing_directory"
DOUBLE = TESTS / "fakes" / "trtllm"
REQUIRED, ANY = "required", "any"


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if os.environ.get("LMI_BACKEND_REAL_TRTLLM"):
        yield
        return
    # The double starts MPI in this process, which would leave its segment in /dev/shm.
    os.environ[SHARED] = str(tmp_path_factory.mktemp("mpi"))
    sys.path.insert(0, str(DOUBLE))
    yield
    del os.environ[SHARED]
    sys.path.remove(str(DOUBLE))
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorrt_llm"]:
        del sys.modules[name]


def _find(path: str) -> Any:
    module, _, names = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("path", RECORD["names"])
def test_the_name_is_there(path: str) -> None:
    assert _find(path) is not None


@pytest.mark.parametrize("path", RECORD["calls"])
def test_the_call_takes_what_was_recorded(path: str) -> None:
    version = _find("tensorrt_llm:__version__")
    other = RECORD["other calls"].get(version, {})
    assert _taken(_find(path)) == other.get(path, RECORD["calls"][path])


def _taken(call: Any) -> dict[str, Any]:
    parameters = dict(inspect.signature(call).parameters)
    parameters.pop("self", None)
    taken: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            taken[name] = ANY
        else:
            is_required = parameter.default is inspect.Parameter.empty
            taken[name] = REQUIRED if is_required else parameter.default
    return taken


@pytest.mark.parametrize("path", RECORD["attributes"])
def test_the_source_sets_the_attributes(path: str) -> None:
    text = inspect.getsource(sys.modules[_find(path).__module__])
    missing = [name for name in RECORD["attributes"][path] if name not in text]
    assert not missing


def test_the_adapter_uses_no_name_that_is_not_recorded() -> None:
    """What compat.py imports is what the record promises."""
    source = (TESTS.parent / "lmi_backend/engines/trtllm/compat.py").read_text("utf-8")
    imported = {
        f"{module}:{name.split(' as ')[0].strip()}"
        for line in source.splitlines()
        if line.strip().startswith("from tensorrt_llm")
        for module, _, names in [line.strip().removeprefix("from ").partition(" import ")]
        for name in names.split("#")[0].split(",")
    }
    assert imported <= set(RECORD["names"])


def test_importing_the_engine_is_enough_to_notice_a_name_that_moved() -> None:
    code = "import lmi_backend.engines.trtllm.engine"
    path = [] if os.environ.get("LMI_BACKEND_REAL_TRTLLM") else [str(DOUBLE)]
    path += [str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
