"""The management library's own interface, with a library of this interface built here."""

import shutil
import subprocess
from pathlib import Path

import pytest

from lmi_backend.plan import gpus
from lmi_backend.plan.gpus import find_gpus
from lmi_backend.units import MIB

SOURCE = Path(__file__).with_name("nvml.c")


@pytest.fixture
def _library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: apt-get install gcc")
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpus, "_FOLDERS", (str(tmp_path),))


@pytest.mark.usefixtures("_library")
def test_a_machine_without_the_drivers_tool_tells_by_its_library() -> None:
    whole, first, second, unified = find_gpus()
    # With partitions among them nothing has a number.
    assert [each.name for each in (whole, first, second)] == ["GPU-0", "MIG-1-0", "MIG-1-2"]
    assert (whole.product, whole.memory) == ("GPU of 0", 81_090 * MIB)
    assert [each.links for each in (whole, first, unified)] == [11, 0, 0]
    assert (first.product, first.memory, first.capability) == ("GPU of 1", 19_627 * MIB, 90)
    assert (unified.is_unified, unified.memory, unified.driver) == (True, 0, "580.1")


def test_a_machine_without_either_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has GPUs")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus() == []
