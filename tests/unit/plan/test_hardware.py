from pathlib import Path

import pytest

from lmi_backend.plan.hardware import visible_devices


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("2, 0", ["2", "0"]),
        ("0,-1,1", ["0"]),
        ("GPU-8f2,MIG-1a", ["GPU-8f2", "MIG-1a"]),
    ],
)
def test_the_mask_decides_what_is_visible(mask: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "nvidia7").touch()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": mask}, nodes=tmp_path) == names


def test_without_a_mask_device_nodes_count(tmp_path: Path) -> None:
    for name in (*(f"nvidia{i}" for i in range(12, 0, -1)), "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_devices({}, nodes=tmp_path) == [str(i) for i in range(1, 13)]


def test_a_machine_without_devices_has_none(tmp_path: Path) -> None:
    assert visible_devices({}, nodes=tmp_path) == []
