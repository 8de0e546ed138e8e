"""Names of vLLM that have moved are found again, and others of the same name are not taken."""

from pathlib import Path

import pytest

from lmi_backend.engines.vllm.inside import names
from lmi_backend.engines.vllm.inside.source import Source
from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "vllm"
    folder.mkdir()
    monkeypatch.setattr(names, "installed", lambda: Source(folder))
    return folder


def test_a_name_that_has_moved_is_found(package: Path) -> None:
    (package / "moved.py").write_text("class AsyncLLM: ...", encoding="utf-8")
    assert names.homes("AsyncLLM") == [("vllm.moved", "AsyncLLM")]


def test_another_thing_of_the_same_name_is_not_taken(package: Path) -> None:
    """Without a second model runner, the first one's class is not the second one's."""
    module = package / "v1" / "sample" / "logits_processor.py"
    module.parent.mkdir(parents=True)
    module.write_text("class LogitsProcessor: ...", encoding="utf-8")
    assert names.homes("LogitsProcessor") == []
    own = package / "v1" / "worker" / "gpu" / "sample" / "logits_processor.py"
    own.parent.mkdir(parents=True)
    own.write_text("class LogitsProcessor: ...", encoding="utf-8")
    entry = names.NAMES["LogitsProcessor"]
    assert names.homes("LogitsProcessor") == [(entry.module, "LogitsProcessor")]


def test_each_name_of_the_tables_is_one_that_is_looked_for() -> None:
    firsts = {
        text.rstrip("?").split("(")[0].split(".")[0]
        for each in (*PATHS, *NEEDS)
        for text in each.names
    }
    assert firsts - names.NAMES.keys() == {"APIRoute"}  # FastAPI's
