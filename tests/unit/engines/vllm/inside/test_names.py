"""Names of vLLM that have moved are found again, and others of the same name are not taken."""

import sys
from pathlib import Path
from types import ModuleType

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


def test_a_module_that_has_moved_is_found_by_what_it_defines(package: Path) -> None:
    own = package / "v1" / "core_of_it" / "logprobs.py"
    own.parent.mkdir(parents=True)
    own.write_text("class LogprobsProcessor: ...", encoding="utf-8")
    assert names.homes("logprobs") == [("vllm.v1.core_of_it.logprobs", "*")]
    assert names.homes("cpu_communicator") == []


def test_each_module_is_found_by_what_it_defines() -> None:
    assert all(entry.defines for entry in names.NAMES.values() if entry.name == "*")


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


class _Fault(Exception):
    __module__ = "vllm.faults"


class _Refusal(_Fault):
    __module__ = "vllm.faults"


class _Invalid(_Refusal):
    __module__ = "vllm.faults"


@pytest.mark.parametrize(
    ("raised", "base"), [(_Invalid, _Refusal), (_Refusal, _Refusal), (ValueError, ValueError)]
)
def test_errors_by_another_name_are_found_by_what_vllm_raises(
    raised: type[Exception], base: type[Exception], monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    """Else a client's mistake would be a fault of the server, which clients repeat."""

    def refuse(**values: float) -> None:
        raise raised(values)

    module = ModuleType("vllm.sampling_params")
    module.SamplingParams = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", module)
    assert package.is_dir()
    assert names.shown_by_vllm("VLLMValidationError") is raised
    assert names.shown_by_vllm("VLLMClientError") is base


def test_a_class_is_found_in_a_package_of_another_name(package: Path) -> None:
    """The second runner's class of the same name is not taken for it."""
    for name in ("worker/gpu_model_runner.py", "worker/gpu/model_runner.py"):
        path = package / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class GPUModelRunner: ...", encoding="utf-8")
    found = [("vllm.core.worker.gpu_model_runner", "GPUModelRunner")]
    assert names.homes("GPUModelRunner") == found


def test_each_name_of_the_tables_is_one_that_is_looked_for() -> None:
    firsts = {
        text.rstrip("?").split("(")[0].split(".")[0]
        for each in (*PATHS, *NEEDS)
        for text in each.names
    }
    assert firsts <= names.NAMES.keys()
