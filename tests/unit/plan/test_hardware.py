from pathlib import Path

import pytest

from lmi_backend.plan.hardware import detect_hardware, visible_devices
from lmi_backend.units import MIB


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


@pytest.mark.parametrize(
    ("said", "memory", "capability"),
    [
        ({"memory.total": "81559\n80000", "compute_cap": "9.0\n9.0"}, 80_000, 90),
        ({"memory.total": "24576", "compute_cap": "12.0"}, 24_576, 120),
        ({"memory.total": "81559", "memory.reserved": "469"}, 81_090, 0),
        ({"memory.total": "24576"}, 24_576, 0),  # an old driver does not know the field
        ({"memory.total": "[N/A]", "compute_cap": "[N/A]"}, 0, 0),
    ],
)
def test_the_drivers_tool_tells_memory_and_capability(
    said: dict[str, str],
    memory: int,
    capability: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = "".join(f"*={field}*) echo '{text}';;\n" for field, text in said.items())
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\ncase "$1" in\n{answers}*) exit 2;;\nesac\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = detect_hardware({"CUDA_VISIBLE_DEVICES": "0"})
    assert (found.device_memory, found.capability) == (memory * MIB, capability)
