from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.plan.gpus import Gpu
from lmi_backend.plan.hardware import detect_hardware, visible_gpus
from lmi_backend.units import MIB

TWO = [Gpu(name="0", uuid="GPU-8f21"), Gpu(name="1", uuid="GPU-8f99")]


def names(mask: str | None, gpus: list[Gpu], nodes: Path) -> list[str]:
    return [gpu.name for gpu in visible_gpus(mask, gpus, nodes=nodes)]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("2, 0", ["2", "0"]),
        ("0,-1,1", ["0"]),
        ("GPU-8f2,MIG-1a", ["GPU-8f2", "MIG-1a"]),
    ],
)
def test_where_no_driver_tells_the_mask_is_believed(
    mask: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "nvidia7").touch()
    assert names(mask, [], tmp_path) == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, ["0", "1"]),
        ("1,0", ["1", "0"]),
        ("4,5", []),
        ("1,2,0", ["1"]),
        ("GPU-8f9", ["GPU-8f9"]),
        ("GPU-8f", []),
        ("MIG-GPU-8f21/1/0", ["MIG-GPU-8f21/1/0"]),
    ],
)
def test_of_known_gpus_it_takes_what_cuda_takes(
    mask: str | None, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "nvidia7").touch()
    assert names(mask, TWO, tmp_path) == expected


def test_device_nodes_are_counted_and_not_named(tmp_path: Path) -> None:
    for name in ("nvidia4", "nvidia5", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    assert names(None, [], tmp_path) == ["0", "1"]


def test_a_machine_without_devices_has_none(tmp_path: Path) -> None:
    assert names(None, [], tmp_path) == []


def test_a_mask_that_names_no_gpu_is_said(nvidia_smi: Callable[..., None]) -> None:
    rows = [f"{i}, GPU-{i}, A, 1024, 0, 8.0, 550.1, Disabled" for i in range(2)]
    nvidia_smi(rows)
    found = detect_hardware({"CUDA_VISIBLE_DEVICES": "4,5"})
    assert found.devices == ()
    assert "CUDA_VISIBLE_DEVICES=4,5: 4 is none of the 2 GPUs" in found.mask_problem
    assert detect_hardware({"CUDA_VISIBLE_DEVICES": "1"}).mask_problem == ""
    assert detect_hardware({"CUDA_VISIBLE_DEVICES": "-1"}).mask_problem == ""


def test_the_memory_is_that_of_the_smallest_visible_gpu(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi(
        ["0, GPU-a, A, 81559, 469, 9.0, 550.1, [N/A]", "1, GPU-b, B, 24576, 0, 8.9, 550.1, [N/A]"]
    )
    both, one = detect_hardware({}), detect_hardware({"CUDA_VISIBLE_DEVICES": "0"})
    assert (both.device_memory, both.capability) == (24_576 * MIB, 90)
    assert one.device_memory == 81_090 * MIB


def test_a_gpu_without_memory_of_its_own_has_the_hosts(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi(["0, GPU-a, NVIDIA GB10, [N/A], [N/A], 12.1, 580.1, [N/A]"])
    found = detect_hardware({})
    assert found.device_memory > found.host_memory > 0
    assert found.capability == 121
