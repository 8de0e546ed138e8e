"""A machine with GPUs, as the driver's tool tells of it."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write an nvidia-smi that knows some fields, and is asked for them in this order."""
    fields = "index,uuid,name,memory.total,memory.reserved,compute_cap,driver_version"

    def write(
        rows: list[str],
        known: str = f"{fields},mig.mode.current",
        listed: str = "",
        xml: str = "",
    ) -> None:
        values = zip(*(row.split(", ") for row in rows), strict=True)
        columns = dict(zip(known.split(","), values, strict=True))
        queries = [known, "index,uuid,name,memory.total", *known.split(",")[4:]]
        cases = [f"-L) printf '{listed}';;", f"-q) printf '{xml}';;"]
        for query in queries:
            lines = zip(*(columns[name] for name in query.split(",")), strict=True)
            output = "".join(", ".join(line) + "\\n" for line in lines)
            cases.append(f"--query-gpu={query}) printf '{output}';;")
        tool = tmp_path / "nvidia-smi"
        tool.write_text('#!/bin/sh\ncase "$1" in\n' + "\n".join(cases) + "\n*) exit 2;;\nesac\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return write
