"""What the doctor finds, on this machine and where something is wrong."""

import importlib.metadata
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli import doctor as module
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.releases import newest_run
from lmi_backend.plan.hardware import detect_hardware
from tests.support.packages.installed_engine import interpreter
from tests.support.run.ports import ANY_PORTS
from tests.support.servers.serving import write_properties
from tests.unit.cli.conftest import Command

ECHO = {"option.rolling_batch": "echo"}
VLLM = {"option.rolling_batch": "vllm", "option.model_id": "org/m"}
Doctor = Callable[..., dict[str, Any]]


@pytest.fixture
def doctor(command: Command) -> Doctor:
    """Run it; return each result by what was looked at."""
    module.import_in.cache_clear()

    def run(*words: Path, status: int = 0) -> dict[str, Any]:
        printed = command("doctor", "--json", *words, status=status).out
        return {each["what"]: each for each in json.loads(printed)}

    return run


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_this_machine_is_well(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor(write_properties(tmp_path / "echo", ECHO))
    assert found["tritonserver"]["status"] == "warning"
    assert "has published vulnerabilities" in found["tritonserver"]["found"]
    for what in ("limits", "echo", "echo: engine"):
        assert found[what]["status"] == "ok", found[what]


def test_a_numpy_that_the_server_cannot_take_is_refused_before_anything_starts(
    doctor: Doctor, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(
        "importlib.metadata.version", lambda name: "2.2.6" if name == "numpy" else real(name)
    )
    assert "numpy 2.2.6 with Triton 24.10" in doctor(status=1)["tritonserver"]["found"]
    echo = write_properties(tmp_path / "echo", ECHO)
    output = command("serve", echo, "--no-frontend", *ANY_PORTS, status=2)
    assert "numpy 2.2.6 with Triton 24.10" in output.err


def test_an_interpreter_without_the_engine_is_an_error(doctor: Doctor, tmp_path: Path) -> None:
    # The interpreter of these tests has no engine.
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}
    config |= {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    config |= {"intermediate_size": 128, "max_position_embeddings": 128, "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    found = doctor(folder, status=1)
    assert found["model"]["status"] == "ok"
    assert "cannot import vllm" in found["model: engine"]["found"]
    assert "option.pythonExecutable" in found["model: engine"]["advice"]


def test_a_port_in_use_is_named(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setitem(module.PORTS, "http", port)
        advice = doctor()["ports"]["advice"]
    assert f"--http-port {port} on 127.0.0.1: Address already in use" in advice


@pytest.mark.parametrize(("name", "value"), [("option.dtype", "fp99"), ("engine", "Pyton")])
def test_a_model_that_cannot_be_planned_is_an_error(
    doctor: Doctor, tmp_path: Path, name: str, value: str
) -> None:
    found = doctor(write_properties(tmp_path / "bad", ECHO | {name: value}), status=1)
    assert f"{name}={value}" in found["bad"]["found"]


def test_each_error_comes_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path / "none")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="mount a tmpfs"):
        module.shared_memory()
    with pytest.raises(ConfigurationError, match="install the driver"):
        module.gpus(detect_hardware(os.environ))


# A node of eight whose container has two; the tool counts those.
TOOL = """\
case "$1" in
--query-gpu=*) for gpu in 4 5; do echo "GPU-$gpu, NVIDIA L40S, 46068, 600, 8.9, 550.54, [N/A]"; done
esac
"""


def test_the_gpus_that_cuda_counts_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "nvidia-smi", TOOL)
    monkeypatch.setenv("PATH", str(tmp_path))
    found, _ = module.gpus(detect_hardware(os.environ, nodes=tmp_path))
    assert found == "2 (0, 1) of at least 44 GiB; NVIDIA L40S, driver 550.54"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(ConfigurationError, match="4 is none of the 2 GPUs that CUDA has"):
        module.gpus(detect_hardware(os.environ, nodes=tmp_path))


def test_an_engine_that_is_too_old_is_said(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_EXECUTABLE", interpreter(tmp_path, tmp_path / "vllm", "0.10.2"))
    found = doctor()["engines"]
    assert found["status"] == "warning"
    assert found["found"].startswith("vllm 0.10.2;")
    assert "vllm 0.10.2 is too old: it has no allowed_media_domains" in found["advice"]
    assert "accepted: 0.11 or later" in found["advice"]


def test_an_engine_that_is_newer_than_any_that_was_run_is_said(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_EXECUTABLE", interpreter(tmp_path, tmp_path / "vllm", "9.1.0"))
    folder = write_properties(tmp_path / "model", VLLM)
    for found in (doctor()["engines"], doctor(folder)["model: engine"]):
        assert found["status"] == "warning"
        newer = f"vLLM 9.1.0 is newer than {newest_run('vllm')}, the newest that was run"
        assert found["advice"].startswith(newer)


def test_an_engine_is_imported_once_for_all_models_that_have_it(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = tmp_path / "imported"
    text = f'case "$2" in *__version__*) echo "$3" >> {imported}; echo version 0.32.0; esac'
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(program(tmp_path / "python", text)))
    found = doctor(*(write_properties(tmp_path / name, VLLM) for name in ("one", "two")))
    assert [found[f"{name}: engine"]["status"] for name in ("one", "two")] == ["ok", "ok"]
    assert imported.read_text(encoding="utf-8") == "vllm\n"


def test_what_a_library_prints_when_it_is_imported_is_not_its_version(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT-LLM prints its version in words of its own; a line may have no end."""
    package = tmp_path / "tensorrt_llm"
    package.mkdir()
    (package / "__init__.py").write_text(
        "__version__ = '1.4.0rc1'\n"
        "print('[TensorRT-LLM] TensorRT LLM version: 9.9\\nversion 9.9\\nno end', end='')\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHON_EXECUTABLE", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "tensorrt_llm 1.4.0rc1" in doctor()["engines"]["found"]
