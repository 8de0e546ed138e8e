"""How much memory is left, in a container and without one."""

from pathlib import Path

import psutil
import pytest

from lmi_backend.plan.host_memory import HostMemory, host_memory, memory_kills

MIB = 1 << 20
GIB = 1 << 30


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


def version_1(folder: str, limit: int) -> dict[str, str]:
    """Return the same group as the first version writes it."""
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{300 * MIB}\n",
        f"{folder}/memory.stat": f"inactive_file 0\ntotal_inactive_file {100 * MIB}\n",
    }


WHOLE = HostMemory(8 * GIB, 6 * GIB)
LIMITED = HostMemory(8 * GIB, 312 * MIB)
V1 = "9:name=systemd:/\n4:cpu,memory:/docker/3f\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        ("0::/\n", version_2("sys/fs/cgroup", f"{512 * MIB}"), LIMITED),
        ("0::/\n", version_2("sys/fs/cgroup", "max"), WHOLE),
        ("0::/a/b\n", version_2("sys/fs/cgroup/a", f"{512 * MIB}"), LIMITED),
        ("0::/a\n", version_2("sys/fs/cgroup/a", "1"), HostMemory(8 * GIB, 0)),
        (V1, version_1("sys/fs/cgroup/memory", 512 * MIB), LIMITED),
        (V1, version_1("sys/fs/cgroup/memory/docker/3f", 512 * MIB), LIMITED),
        # What the first version writes where there is no limit.
        (V1, version_1("sys/fs/cgroup/memory", 9223372036854771712), WHOLE),
        ("0::/\n", {}, WHOLE),
        ("", {}, WHOLE),
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
        (V1, {"sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\noom_kill 3\n"}, 3),
        # Before Linux 4.13.
        (V1, {"sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\n"}, 0),
        ("0::/\n", {"proc/vmstat": "nr_free_pages 5\noom_kill 3\n"}, 3),
        ("", {}, 0),
    ],
)
def test_the_kernel_counts_whom_it_kills(
    groups: str, files: dict[str, str], count: int, tmp_path: Path
) -> None:
    assert memory_kills(machine(tmp_path, groups, files)) == count
