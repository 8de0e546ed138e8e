"""What the driver's tool tells, as drivers old and new do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.plan import gpus
from lmi_backend.plan.gpus import find_gpus
from lmi_backend.plan.hardware import detect_hardware
from lmi_backend.units import MIB

BASIC = "index,uuid,name,memory.total"
WHOLE = "0, GPU-a, NVIDIA A100-SXM4-40GB, 40960, 0, 8.0, 550.1, Disabled"
DIVIDED = "1, GPU-b, NVIDIA A100-SXM4-40GB, 40960, 0, 8.0, 550.1, Enabled"
LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)\\n\
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)\\n\
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d)\\n\
  MIG 3g.20gb     Device  1: (UUID: MIG-0a9f11f3-1c02)\\n"""
PART = """\
    <mig_device>
      <index>{}</index>
      <fb_memory_usage>
        <total>20096 MiB</total>
        <reserved>469 MiB</reserved>
        <used>3 MiB</used>
      </fb_memory_usage>
    </mig_device>
"""


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


@pytest.mark.parametrize(
    ("xml", "memory"),
    [
        (PART.format(0) + PART.format(1), 19_627 * MIB),
        # One that the list has is missing, or has no size.
        (PART.format(0), 0),
        (PART.format(0) + "<mig_device><index>1</index></mig_device>", 0),
        ("", 0),
    ],
)
def test_partitions_stand_in_the_place_of_their_gpu(
    nvidia_smi: Callable[..., None], xml: str, memory: int
) -> None:
    """By their UUIDs, as each GPU then: CUDA takes just one of them otherwise."""
    nvidia_smi([WHOLE, DIVIDED], listed=LISTED, xml=xml)
    whole, *parts = find_gpus()
    assert (whole.name, whole.memory) == ("GPU-a", 40_960 * MIB)
    assert [gpu.name for gpu in parts] == ["MIG-c7384736-a75d", "MIG-0a9f11f3-1c02"]
    assert all(gpu.memory == memory and not gpu.is_unified for gpu in parts)
    assert {(gpu.product, gpu.capability) for gpu in parts} == {("NVIDIA A100-SXM4-40GB", 80)}


def test_a_divided_gpu_without_parts_is_one_device(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi([WHOLE, DIVIDED])
    assert [gpu.name for gpu in find_gpus()] == ["0", "1"]


def test_a_machine_without_the_tool_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpus, "_FOLDERS", (str(tmp_path),))
    assert find_gpus() == []


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
