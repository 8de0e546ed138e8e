"""What processes hold, told by looking at them alone: other tests run beside them."""

import psutil


def shared_memory(processes: list[psutil.Process], prefix: str) -> set[str]:
    """Return the files of shared memory that processes have mapped, by the start of their name."""
    paths = (each.path for process in processes for each in process.memory_maps())
    return {path for path in paths if path.startswith(f"/dev/shm/{prefix}")}
