"""A machine with GPUs, as the driver's tool tells of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.packages.installed_engine import script


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write an nvidia-smi that knows the rows of this query."""
    known = "uuid,name,memory.total,memory.reserved,compute_cap,driver_version,mig.mode.current"

    def write(rows: list[str], listed: str = "", xml: str = "") -> None:
        answers = {"-L": listed, "-q": xml, f"--query-gpu={known}": "\\n".join([*rows, ""])}
        cases = [f"{query}) printf '{answer}';;" for query, answer in answers.items()]
        script(tmp_path / "nvidia-smi", "\n".join(['case "$1" in', *cases, "*) exit 2;;", "esac"]))
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return write
