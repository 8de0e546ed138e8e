import json
from pathlib import Path

import pytest

from lmi_backend import __version__
from lmi_backend.cli.main import main
from lmi_backend.options import OPTIONS


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
    assert main(["convert", str(echo), "--repository", str(tmp_path), "--name", "mine"]) == 0
    assert 'name: "mine"' in (tmp_path / "mine" / "config.pbtxt").read_text()


def test_a_plan_shows_what_the_engine_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    lines = ("option.model_id=org/m", "option.tensor_parallel_degree=2", "option.block_size=16")
    (tmp_path / "serving.properties").write_text("\n".join(lines))
    assert main(["plan", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "workers     2 on 0,1; 2,3\nparallel    tensor 2, pipeline 1\n" in said
    assert "argument    tensor_parallel_size=2\n" in said
    assert "argument    block_size=16\n" in said


def test_options_are_listed_and_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "tensor_parallel"]) == 0
    said = capsys.readouterr().out
    assert "option.tensor_parallel_degree (default max)" in said
    assert "TENSOR_PARALLEL_DEGREE" in said
    assert "job_queue_size" not in said
    assert main(["options"]) == 0
    said = capsys.readouterr().out
    assert [option.name for option in OPTIONS if f"{option.name}" not in said] == []
    assert "Refused: custom handlers are not supported." in said


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


@pytest.mark.parametrize("command", ["plan", "serve", "convert"])
def test_a_bad_option_is_one_line_with_its_place(
    command: str, echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (echo / "serving.properties").write_text("\noption.dtype=fp99\n")
    extra = ["--repository", str(tmp_path / "models")] if command == "convert" else []
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
    assert main([command, str(echo), *extra, *(ports if command == "serve" else [])]) == 1
    said = capsys.readouterr().err
    assert said.startswith("lmi-backend: serving.properties:2: option.dtype=fp99 is unknown; ")
    assert said.count("\n") == 1
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [([], 2, "COMMAND"), (["fly"], 2, "fly"), (["--version"], 0, __version__)],
)
def test_the_command_line_is_checked(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == status
    said = capsys.readouterr()
    assert words in said.out + said.err
