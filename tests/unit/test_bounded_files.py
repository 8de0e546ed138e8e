import os
from pathlib import Path

import pytest

from lmi_backend.bounded_files import LARGEST, read_bounded
from lmi_backend.errors import ConfigurationError, PlanError
from lmi_backend.options import load_options
from lmi_backend.plan.model_source import find_custom
from lmi_backend.repository.files import read
from lmi_backend.repository.record import RECORD, Record
from lmi_backend.sizing.config_fields import read_config


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_bounded(file, 5) == b"12345"
    with pytest.raises(OSError, match="is too large; accepted: at most 4 B"):
        read_bounded(file, 4)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "other")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="is no regular file"):
            read_bounded(path)


def test_sparse_files_of_a_model_are_refused_by_name(tmp_path: Path) -> None:
    """One of 20 GB costs its author nothing."""
    (tmp_path / "serving.properties").write_text("option.rolling_batch=echo\n")
    options = load_options(tmp_path, {})
    for name in ("config.json", "model.py", RECORD, "serving.properties"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        with file.open("wb") as opened:
            opened.truncate(20 << 30)
    reads = (
        lambda: read_config(tmp_path),
        lambda: find_custom(options),
        lambda: Record.read(tmp_path),
        lambda: read(tmp_path / "serving.properties"),
        lambda: load_options(tmp_path, {}),
    )
    for each in reads:
        with pytest.raises(
            (ConfigurationError, PlanError), match="is too large; accepted: at most"
        ):
            each()


def test_the_bound_is_above_what_models_have() -> None:
    # The index of DeepSeek-V3's weights.
    assert LARGEST > 4 * 8_900_000
