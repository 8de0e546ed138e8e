"""What the doctor finds, on this machine and where something is wrong."""

import importlib.metadata
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli import doctor
from lmi_backend.cli.main import main
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.releases import newest_run
from lmi_backend.plan.hardware import detect_hardware
from tests.support.packages.installed_engine import interpreter
from tests.support.run.ports import ANY_PORTS


@pytest.fixture(autouse=True)
def _nothing_imported() -> None:
    doctor.import_in.cache_clear()


def _doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status, and each result by what was looked at."""
    status = main(["doctor", "--json", *words])
    return status, {each["what"]: each for each in json.loads(capsys.readouterr().out)}


def _echo(folder: Path, *lines: str) -> Path:
    folder.mkdir()
    text = "\n".join(["option.rolling_batch=echo", *lines])
    (folder / "serving.properties").write_text(text, encoding="utf-8")
    return folder


def test_this_machine_is_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, found = _doctor(capsys, str(_echo(tmp_path / "echo")))
    assert status == 0
    assert found["tritonserver"]["status"] == "warning"
    assert "has published vulnerabilities" in found["tritonserver"]["found"]
    for what in ("limits", "echo", "echo: engine"):
        assert found[what]["status"] == "ok", found[what]


def test_a_numpy_that_the_server_cannot_take_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(
        "importlib.metadata.version", lambda name: "2.2.6" if name == "numpy" else real(name)
    )
    status, found = _doctor(capsys)
    assert status == 1
    assert "numpy 2.2.6 with Triton 24.10" in found["tritonserver"]["found"]
    assert main(["serve", str(_echo(tmp_path / "echo")), "--no-frontend", *ANY_PORTS]) == 2
    assert "numpy 2.2.6 with Triton 24.10" in capsys.readouterr().err


def test_an_interpreter_without_the_engine_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The interpreter of these tests has no engine.
    monkeypatch.delenv("PYTHON_EXECUTABLE", raising=False)
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}
    config |= {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    config |= {"intermediate_size": 128, "max_position_embeddings": 128, "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    status, found = _doctor(capsys, str(folder))
    assert status == 1
    assert found["model"]["status"] == "ok"
    assert "cannot import vllm" in found["model: engine"]["found"]
    assert "option.pythonExecutable" in found["model: engine"]["advice"]


def test_a_port_in_use_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setitem(doctor.PORTS, "http", port)
        _, found = _doctor(capsys)
    assert f"--http-port {port} on 127.0.0.1: Address already in use" in found["ports"]["advice"]


@pytest.mark.parametrize(
    ("line", "words"),
    [("option.dtype=fp99", "option.dtype=fp99"), ("engine=Pyton", "engine=Pyton")],
)
def test_a_model_that_cannot_be_planned_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, words: str
) -> None:
    status, found = _doctor(capsys, str(_echo(tmp_path / "bad", line)))
    assert status == 1
    assert words in found["bad"]["found"]


def test_each_error_comes_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path / "none")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="mount a tmpfs"):
        doctor.shared_memory()
    with pytest.raises(ConfigurationError, match="install the driver"):
        doctor.gpus(detect_hardware(os.environ))


# A node of eight whose container has two; the tool counts those.
TOOL = """\
#!/bin/sh
case "$1" in
--query-gpu=*) for gpu in 4 5; do echo "GPU-$gpu, NVIDIA L40S, 46068, 600, 8.9, 550.54, [N/A]"; done
esac
"""


def test_the_gpus_that_cuda_counts_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "nvidia-smi").write_text(TOOL, encoding="utf-8")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found, _ = doctor.gpus(detect_hardware(os.environ, nodes=tmp_path))
    assert found == "2 (0, 1) of at least 44 GiB; NVIDIA L40S, driver 550.54"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(ConfigurationError, match="4 is none of the 2 GPUs that CUDA has"):
        doctor.gpus(detect_hardware(os.environ, nodes=tmp_path))


def test_an_engine_that_is_too_old_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$3" = vllm ] && echo version 0.10.2\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(python))
    _, found = _doctor(capsys)
    assert found["engines"]["status"] == "warning"
    assert found["engines"]["found"].startswith("vllm 0.10.2;")
    assert "vllm 0.10.2 is too old: it has no allowed_media_domains" in found["engines"]["advice"]
    assert "accepted: 0.11 or later" in found["engines"]["advice"]


def test_an_engine_that_is_newer_than_any_that_was_run_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_EXECUTABLE", interpreter(tmp_path, tmp_path / "vllm", "9.1.0"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    newer = f"vLLM 9.1.0 is newer than {newest_run('vllm')}, the newest that was run"
    _, found = _doctor(capsys)
    assert found["engines"]["status"] == "warning"
    assert found["engines"]["advice"].startswith(newer)
    folder = _echo(tmp_path / "model")
    lines = "option.rolling_batch=vllm\noption.model_id=org/m\n"
    (folder / "serving.properties").write_text(lines, encoding="utf-8")
    _, found = _doctor(capsys, str(folder))
    assert found["model: engine"]["status"] == "warning"
    assert found["model: engine"]["advice"].startswith(newer)


def test_an_engine_is_imported_once_for_all_models_that_have_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, imported = tmp_path / "python", tmp_path / "imported"
    text = (
        f'#!/bin/sh\ncase "$2" in *__version__*) echo "$3" >> {imported}; echo version 0.32.0; esac'
    )
    python.write_text(f"{text}\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(python))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folders = [_echo(tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        lines = "option.rolling_batch=vllm\noption.model_id=org/m\n"
        (folder / "serving.properties").write_text(lines, encoding="utf-8")
    _, found = _doctor(capsys, *map(str, folders))
    assert [found[f"{name}: engine"]["status"] for name in ("one", "two")] == ["ok", "ok"]
    assert imported.read_text(encoding="utf-8") == "vllm\n"


def test_what_a_library_prints_when_it_is_imported_is_not_its_version(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    _, found = _doctor(capsys)
    assert "tensorrt_llm 1.4.0rc1" in found["engines"]["found"]
