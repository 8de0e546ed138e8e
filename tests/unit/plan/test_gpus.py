"""What the driver's tool tells, as drivers old and new do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.plan import gpus
from lmi_backend.plan.gpus import find_gpus
from lmi_backend.plan.hardware import detect_hardware
from lmi_backend.units import MIB

BASIC = "index,uuid,name,memory.total"
DIVIDED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6)\\n\
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d)\\n\
  MIG 3g.20gb     Device  1: (UUID: MIG-0a9f11f3-1c02)\\n"""


def test_gpus_are_counted_from_0(nvidia_smi: Callable[..., None]) -> None:
    row = "NVIDIA H100 80GB HBM3, 81559, 469, 9.0, 550.54.15, Disabled"
    nvidia_smi([f"0, GPU-a, {row}", f"1, GPU-b, {row}"])
    first, second = find_gpus()
    assert (first.name, second.name) == ("0", "1")
    assert first.product == "NVIDIA H100 80GB HBM3"
    assert (first.memory, first.capability, first.driver) == (81_090 * MIB, 90, "550.54.15")
    assert not first.is_unified


@pytest.mark.parametrize(
    ("known", "rest", "memory", "capability"),
    [
        ("", "", 24_576, 0),
        (",compute_cap", ", 12.0", 24_576, 120),
        (",memory.reserved", ", 576", 24_000, 0),
    ],
)
def test_an_old_driver_tells_what_it_knows(
    nvidia_smi: Callable[..., None], known: str, rest: str, memory: int, capability: int
) -> None:
    nvidia_smi([f"0, GPU-a, A10, 24576{rest}"], known=BASIC + known)
    (gpu,) = find_gpus()
    assert (gpu.memory, gpu.capability, gpu.driver) == (memory * MIB, capability, "")


def test_partitions_stand_in_the_place_of_their_gpu(nvidia_smi: Callable[..., None]) -> None:
    """By their UUIDs: CUDA takes just one of them otherwise."""
    row = "0, GPU-5d5ba0d6, NVIDIA A100-SXM4-40GB, 40960, 0, 8.0, 550.1, Enabled"
    nvidia_smi([row], listed=DIVIDED)
    found = find_gpus()
    assert [gpu.name for gpu in found] == ["MIG-c7384736-a75d", "MIG-0a9f11f3-1c02"]
    assert all(gpu.memory == 0 and not gpu.is_unified and gpu.capability == 80 for gpu in found)


def test_a_tool_without_a_driver_tells_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho NVIDIA-SMI has failed; exit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_gpus() == []


def test_windows_linux_has_the_tool_outside_of_path_and_no_device_nodes(
    nvidia_smi: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(["0, GPU-a, NVIDIA GeForce RTX 4090, 24564, [N/A], 8.9, 560.1, [N/A]"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(gpus, "_FOLDERS", (str(tmp_path),))
    nodes = tmp_path / "dev"
    nodes.mkdir()
    (nodes / "dxg").touch()
    found = detect_hardware({}, nodes=nodes)
    assert (found.devices, found.device_memory) == (("0",), 24_564 * MIB)
