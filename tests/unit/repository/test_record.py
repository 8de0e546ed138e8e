"""What is kept of a conversion, and which later edits are named."""

from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import load_options
from lmi_backend.repository.files import Record, option_changes
from lmi_backend.repository.writer import write_model

ECHO = "option.rolling_batch=echo\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "serving.properties").write_text(ECHO)
    return folder


def write(source: Path, repository: Path, name: str) -> Path:
    write_model(source, repository, name, load_options(source, {}))
    return repository / name


def test_an_edit_after_conversion_is_named(source: Path) -> None:
    (source / "serving.properties").write_text("option.dtype=fp16\noption.seed=1\n")
    record = Record.of(load_options(source, {}), "salt")
    written = {"options_digest": record.digest}
    assert list(option_changes(written, record, load_options(source, {}))) == []
    (source / "serving.properties").write_text("option.dtype=bf16\noption.watermark=1\n")
    assert list(option_changes(written, record, load_options(source, {}))) == [
        "serving.properties:1: option.dtype=bf16 was fp16 at conversion",
        "option.seed was 1 at conversion and is not set now",
        "serving.properties:2: option.watermark=1 was not set at conversion",
    ]
    # One without config.pbtxt, or with one of its own, has nothing to compare with.
    assert list(option_changes({}, None, load_options(source, {}))) == []
    (problem,) = option_changes(written, None, load_options(source, {}))
    assert "1/record.json is missing" in problem


def test_a_secret_that_changed_after_conversion_is_named_and_not_shown(source: Path) -> None:
    record = Record.of(load_options(source, {"OPTION_ENV": "X=before,Y=1"}), "salt")
    (change,) = option_changes({}, record, load_options(source, {"OPTION_ENV": "X=after,Y=1"}))
    assert change == (
        "environment: OPTION_ENV=X=***,Y=*** was another value at conversion, which is not shown "
        "either"
    )


def test_a_record_of_another_conversion_is_noticed(source: Path) -> None:
    options = load_options(source, {})
    first, second = Record.of(options, "salt"), Record.of(options, "pepper")
    (problem,) = option_changes({"options_digest": first.digest}, second, options)
    assert "is not that of config.pbtxt" in problem


def test_a_record_that_cannot_be_read_says_whose_it_must_be(source: Path, tmp_path: Path) -> None:
    folder = write(source, tmp_path, "m")
    (folder / "1" / "record.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"record.json: is not a record .* convert again"):
        Record.read(folder)
    # Convert does not need it.
    write(source, tmp_path, "m")
    (folder / "1" / "record.json").unlink()
    (folder / "1" / "record.json").mkdir()
    with pytest.raises(ConfigurationError, match="accepted: a file of the server's user"):
        Record.read(folder)
