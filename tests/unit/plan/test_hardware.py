"""What a machine offers: GPUs as drivers report them, by name and by mask, and memory."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.plan import hardware
from lmi_backend.plan.hardware import (
    GPU_KINDS,
    Gpu,
    HostMemory,
    detect_hardware,
    find_gpus,
    gpu_kind,
    gpu_of_memory,
    host_memory,
    memory_kills,
    visible_gpus,
)
from lmi_backend.printable import GIB, MIB
from tests.support.packages.installed_engine import script


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "H100"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("rtx pro 6000", "RTX-PRO-6000"),
        ("a100 80GB", "A100-80GB"),
    ],
)
def test_makers_and_spelling_do_not_matter(name: str, key: str) -> None:
    assert gpu_kind(name) is GPU_KINDS[key]


def test_others_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"--gpu K80; accepted: V100-16GB, V100-32GB, "):
        gpu_kind("K80")


def test_memory_as_a_log_has_it_tells_the_kind() -> None:
    assert gpu_of_memory(int(94.97 * GIB)) is GPU_KINDS["RTX-PRO-6000"]
    assert gpu_of_memory(80 * GIB) is None
    assert gpu_of_memory(0) is None


WHOLE = "GPU-a, NVIDIA A100-SXM4-40GB, 40960, 0, 8.0, 550.1, Disabled"
DIVIDED = "GPU-b, NVIDIA A100-SXM4-40GB, 40960, 0, 8.0, 550.1, Enabled"
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
    nvidia_smi([f"GPU-a, {row}", f"GPU-b, {row}"])
    first, second = find_gpus()
    assert (first.name, second.name) == ("0", "1")
    assert first.product == "NVIDIA H100 80GB HBM3"
    assert (first.memory, first.capability, first.driver) == (81_090 * MIB, 90, "550.54.15")
    assert not first.is_unified


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
    monkeypatch.setattr(hardware, "_FOLDERS", (str(tmp_path),))
    assert find_gpus() == []


def test_a_tool_without_a_driver_tells_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_gpus() == []


def test_windows_linux_has_the_tool_outside_of_path_and_no_device_nodes(
    nvidia_smi: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(["GPU-a, NVIDIA GeForce RTX 4090, 24564, [N/A], 8.9, 560.1, [N/A]"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(hardware, "_FOLDERS", (str(tmp_path),))
    nodes = tmp_path / "dev"
    nodes.mkdir()
    (nodes / "dxg").touch()
    found = detect_hardware({}, nodes=nodes)
    assert (found.devices, found.device_memory) == (("0",), 24_564 * MIB)


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    """Write the files of a machine of 8 GiB, 6 of them available, as Linux 6.1 writes them."""
    files = {
        "proc/meminfo": f"MemTotal: {8 * GIB >> 10} kB\nMemAvailable: {6 * GIB >> 10} kB\n",
        "proc/self/cgroup": groups,
        **files,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def version_2(folder: str, limit: str) -> dict[str, str]:
    """Return the files of a group that uses 300 MiB, 100 of them for files nobody uses."""
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{300 * MIB}\n",
        f"{folder}/memory.stat": f"anon {200 * MIB}\ninactive_file {100 * MIB}\n",
    }


WHOLE_MACHINE = HostMemory(8 * GIB, 6 * GIB)
LIMITED = HostMemory(8 * GIB, 312 * MIB)


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        ("0::/\n", version_2("sys/fs/cgroup", f"{512 * MIB}"), LIMITED),
        ("0::/\n", version_2("sys/fs/cgroup", "max"), WHOLE_MACHINE),
        ("0::/a/b\n", version_2("sys/fs/cgroup/a", f"{512 * MIB}"), LIMITED),
        ("0::/a\n", version_2("sys/fs/cgroup/a", "1"), HostMemory(8 * GIB, 0)),
        ("4:cpu,memory:/docker/3f\n0::/\n", {}, WHOLE_MACHINE),
        ("", {}, WHOLE_MACHINE),
    ],
)
def test_the_limit_of_a_container_counts(
    tmp_path: Path, groups: str, files: dict[str, str], found: HostMemory
) -> None:
    assert host_memory(machine(tmp_path, groups, files)) == found


def test_this_machine_has_what_another_library_finds() -> None:
    found, other = host_memory(), psutil.virtual_memory()
    assert found.total == other.total
    assert 0 < found.available <= found.total


def test_a_system_without_these_files_is_unknown(tmp_path: Path) -> None:
    assert host_memory(tmp_path) == HostMemory(0, 0)


@pytest.mark.parametrize(
    ("groups", "files", "count"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.events": "oom 7\noom_kill 3\n"}, 3),
        ("0::/a/b\n", {"sys/fs/cgroup/memory.events": "low 0\noom_kill 3\n"}, 3),
        ("0::/\n", {"proc/vmstat": "nr_free_pages 5\noom_kill 3\n"}, 3),
        ("", {}, 0),
    ],
)
def test_the_kernel_counts_whom_it_kills(
    groups: str, files: dict[str, str], count: int, tmp_path: Path
) -> None:
    assert memory_kills(machine(tmp_path, groups, files)) == count


TWO = [Gpu(name="0", uuid="GPU-8f21"), Gpu(name="1", uuid="GPU-8f99")]


def names(mask: str | None, gpus: list[Gpu], nodes: Path) -> list[str]:
    return [gpu.name for gpu in visible_gpus(mask, gpus, nodes=nodes)]


@pytest.mark.parametrize(
    ("gpus", "mask", "expected"),
    [
        # Where no driver tells, the mask is believed.
        ([], "", []),
        ([], "-1", []),
        ([], "0", ["0"]),
        ([], "2, 0", ["2", "0"]),
        ([], "0,-1,1", ["0"]),
        ([], "GPU-8f2,MIG-1a", ["GPU-8f2", "MIG-1a"]),
        (TWO, None, ["0", "1"]),
        (TWO, "1,0", ["1", "0"]),
        (TWO, "4,5", []),
        (TWO, "1,2,0", ["1"]),
        (TWO, "GPU-8f9", ["GPU-8f9"]),
        (TWO, "GPU-8f", []),
    ],
)
def test_a_mask_takes_what_cuda_takes(
    gpus: list[Gpu], mask: str | None, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "nvidia7").touch()
    assert names(mask, gpus, tmp_path) == expected


def test_device_nodes_are_counted_and_not_named(tmp_path: Path) -> None:
    for name in ("nvidia4", "nvidia5", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    assert names(None, [], tmp_path) == ["0", "1"]


def test_a_machine_without_devices_has_none(tmp_path: Path) -> None:
    assert names(None, [], tmp_path) == []


def test_a_mask_that_names_no_gpu_is_said(nvidia_smi: Callable[..., None]) -> None:
    rows = [f"GPU-{i}, A, 1024, 0, 8.0, 550.1, Disabled" for i in range(2)]
    nvidia_smi(rows)
    found = detect_hardware({"CUDA_VISIBLE_DEVICES": "4,5"})
    assert found.devices == ()
    assert "CUDA_VISIBLE_DEVICES=4,5: 4 is none of the 2 GPUs" in found.mask_problem
    assert detect_hardware({"CUDA_VISIBLE_DEVICES": "1"}).mask_problem == ""
    assert detect_hardware({"CUDA_VISIBLE_DEVICES": "-1"}).mask_problem == ""


def test_the_memory_is_that_of_the_smallest_visible_gpu(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi(["GPU-a, A, 81559, 469, 9.0, 550.1, [N/A]", "GPU-b, B, 24576, 0, 8.9, 550.1, [N/A]"])
    both, one = detect_hardware({}), detect_hardware({"CUDA_VISIBLE_DEVICES": "0"})
    assert (both.device_memory, both.capability) == (24_576 * MIB, 90)
    assert one.device_memory == 81_090 * MIB


def test_a_gpu_without_memory_of_its_own_has_the_hosts(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi(["GPU-a, NVIDIA GB10, [N/A], [N/A], 12.1, 580.1, [N/A]"])
    found = detect_hardware({})
    assert found.device_memory > found.host_memory > 0
    assert found.capability == 121
