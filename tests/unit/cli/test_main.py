import json
import socket
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.cli.serve import Ports
from lmi_backend.errors import ConfigurationError


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHON_EXECUTABLE", raising=False)
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\noption.swap_space=4\n")
    return folder


def test_plan_says_what_and_why(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(echo)]) == 0
    said = capsys.readouterr().out
    assert "engine      echo" in said
    assert "because     serving.properties:2: option.swap_space is ignored" in said
    assert main(["plan", str(echo / "serving.properties"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "echo"


def test_convert_writes_a_model_under_the_folders_name(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(echo), "--repository", str(tmp_path / "models")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "models" / "echo")
    assert (tmp_path / "models" / "echo" / "config.pbtxt").is_file()


def test_options_are_listed_and_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "tensor_parallel"]) == 0
    said = capsys.readouterr().out
    assert "option.tensor_parallel_degree (default max)" in said
    assert "TENSOR_PARALLEL_DEGREE" in said
    assert "job_queue_size" not in said


def test_the_backend_is_installed_into_an_existing_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install-backend", str(tmp_path)]) == 0
    assert (tmp_path / "lmi" / "model.py").is_file()
    assert main(["install-backend", str(tmp_path / "none")]) == 1
    assert "is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["plan", "/no/such/folder"],
            "is not a folder; accepted: a folder with a serving.properties",
        ),
        (["plan", "/"], "has neither serving.properties nor config.json"),
        (["generate", "x", "--url", "127.0.0.1:1"], "127.0.0.1:1: no answer: "),
        (["generate", "x", "--url", "ftp://a"], "accepted: http://HOST:PORT"),
    ],
)
def test_a_fault_is_one_line_and_a_status(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_taken_port_is_named_with_its_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"--grpc-port {port} on 127\.0\.0\.1: "):
            Ports("127.0.0.1", 0, port, 0).check()
