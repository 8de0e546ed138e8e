import json
import os
import re
import sys
from pathlib import Path

import pytest

from lmi_backend import __version__
from lmi_backend.cli.main import main
from lmi_backend.cli.planning import UNREAD
from lmi_backend.options import load_options
from tests.support.run.ports import ANY_PORTS
from tests.unit.sizing.test_model_facts import LLAMA_3_8B

README = Path(__file__).resolve().parents[3] / "README.md"
GOLDEN = README.parent / "tests" / "golden"
STATUS_WITHOUT_A_HUB = {"check": 0, "plan": UNREAD}


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHON_EXECUTABLE", raising=False)
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\noption.swap_space=4\n")
    return folder


def test_plan_says_what_and_why(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(echo)]) == 0
    output = capsys.readouterr().out
    assert "engine      echo" in output
    assert "note        serving.properties:2: option.swap_space=4 is ignored" in output
    assert main(["plan", str(echo / "serving.properties"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "echo"


def test_convert_writes_a_model_under_the_folders_name(
    echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(echo), "--repository", str(tmp_path / "models")]) == 0
    output = capsys.readouterr()
    assert output.out.strip() == str(tmp_path / "models" / "echo")
    assert "lmi-backend: echo: serving.properties:2: option.swap_space=4 is ignored" in output.err
    assert (tmp_path / "models" / "echo" / "config.pbtxt").is_file()
    assert main(["convert", str(echo), "--repository", str(tmp_path), "--name", "mine"]) == 0
    assert 'name: "mine"' in (tmp_path / "mine" / "config.pbtxt").read_text()


def test_a_plan_shows_what_the_engine_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    lines = ("option.model_id=org/m", "option.tensor_parallel_degree=2", "option.seed=16")
    (tmp_path / "serving.properties").write_text("\n".join(lines))
    assert main(["plan", str(tmp_path)]) == UNREAD
    output = capsys.readouterr().out
    assert "workers     2 on GPU 0,1; 2,3\nparallel    tensor 2, pipeline 1\n" in output
    assert "argument    tensor_parallel_size=2\n" in output
    assert "argument    seed=16\n" in output


def test_options_are_listed_and_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "tensor_parallel"]) == 0
    output = capsys.readouterr().out
    assert "option.tensor_parallel_degree\n" in output
    assert "TENSOR_PARALLEL_DEGREE" in output
    assert "job_queue_size" not in output
    assert main(["options", "--engine", "trtllm", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["option.tokens_per_block"]["detail"] == "trtllm kv_cache_config.tokens_per_block"
    assert rows["option.tokenizer_mode"]["status"] == "passed"
    assert rows["option.bedrock_compat"]["status"] == "refused"
    assert rows["SERVING_FEATURES"]["status"] == "mapped"
    assert "option.swap_space" not in rows


def test_check_shows_the_fate_of_everything(
    echo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVING_JOB_QUEUE_SIZE", "7")
    assert main(["check", str(echo)]) == 0
    output = capsys.readouterr().out
    assert "serving.properties:1   option.rolling_batch=echo mapped   used as engine" in output
    assert "environment            SERVING_JOB_QUEUE_SIZE=7  mapped   used as queue_size" in output
    assert main(["check", str(echo), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["options"]
    assert [row["status"] for row in rows if row["name"] == "option.swap_space"] == ["ignored"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["serv"], "did you mean serve?"),
        (["bench"], "AIPerf"),
        (["deploy", "x", "--output=y", "--to=kubernets"], "did you mean kubernetes?"),
    ],
)
def test_a_word_that_is_nearly_one_of_ours_is_named(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("load_on_devices=9", "load_on_devices=9         refused  names a device twice or"),
        ("max_idle_time=9", "max_idle_time=9           ignored  1 worker(s) run all the time"),
        ("option.max_idle_time=9", "option.max_idle_time=9    ignored  1 worker(s) run all the"),
    ],
)
def test_check_says_of_an_option_what_the_plan_says(
    text: str, line: str, echo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (echo / "serving.properties").write_text(f"option.rolling_batch=echo\n{text}\n")
    main(["check", str(echo), "--gpus", "1"])
    assert f"serving.properties:2   {line}" in capsys.readouterr().out


def test_check_finds_every_fault_at_once(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "option.dtype=fp99\noption.translator=a\njob_queue_size=-1\noption.max_modle_len=1"
    (echo / "serving.properties").write_text(f"option.model_id=a/b\n{text}\ntranslator=x\n")
    assert main(["check", str(echo)]) == 2
    output = capsys.readouterr().out
    assert "refused: serving.properties:2: option.dtype=fp99 is unknown; accepted: auto" in output
    assert "refused: serving.properties:4: job_queue_size=-1 is out of range" in output
    assert "refused: serving.properties:6: translator=x is not supported" in output
    assert "did you mean option.max_model_len?" in output


def test_another_machine_and_release_are_supposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "m"
    folder.mkdir()
    text = "option.rolling_batch=vllm\noption.model_id=org/m\nload_on_devices=0\n"
    (folder / "serving.properties").write_text(text, encoding="utf-8")
    into = ["--repository", str(tmp_path / "models")]
    command = ["convert", str(folder), *into]
    assert main(command) == 2
    assert "load_on_devices=0 names a device" in capsys.readouterr().err
    assert main([*command, "--gpus", "1", "--engine-version", "0.26.0"]) == 0
    assert "planned for vLLM 0.26.0" in capsys.readouterr().err
    for command in ("plan", "check"):
        words = [command, str(folder), "--gpus", "1", "--engine-version", "v0.26.0"]
        assert main(words) == STATUS_WITHOUT_A_HUB[command]
        assert "planned for vLLM 0.26.0, as --engine-version says" in capsys.readouterr().out
        for word in ("new", "26", "latest"):
            assert main([command, str(folder), "--engine-version", word]) == 2
            assert f"--engine-version {word}; accepted: a release" in capsys.readouterr().err
    assert main(["options", "kda_decode_backend", "--engine-version", "0.26.0"]) == 1


def test_a_store_is_converted_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, models = tmp_path / "store", tmp_path / "models"
    for name in ("a", "b", "c"):
        (store / name).mkdir(parents=True)
        (store / name / "serving.properties").write_text("option.rolling_batch=echo\n")
    (store / "b" / "serving.properties").write_text("option.dtype=fp99\n")
    assert main(["convert", str(store), "--repository", str(models)]) == 2
    assert f"{store / 'b'}: serving.properties:1: option.dtype=fp99" in capsys.readouterr().err
    assert not models.exists()
    (store / "b" / "serving.properties").write_text("option.rolling_batch=echo\n")
    assert main(["convert", str(store), "--repository", str(models)]) == 0
    assert sorted(path.name for path in models.iterdir()) == ["a", "b", "c"]
    assert main(["convert", str(store), "--repository", str(models), "--name", "x"]) == 2


def test_an_error_of_the_engines_choice_hides_no_other(
    echo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEMAKER_SECURE_MODE", "true")
    monkeypatch.setenv("SERVING_JOB_QUEUE_SISE", "3")
    text = "engine=MPI\noption.mpi_mode=false\njob_queue_size=x\noption.max_modle_len=1\n"
    (echo / "serving.properties").write_text(text)
    assert main(["check", str(echo)]) == 2
    output = capsys.readouterr().out
    assert output.count("\nrefused: ") == 4
    assert "did you mean SERVING_JOB_QUEUE_SIZE?" in output


def test_a_plan_can_suppose_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16384,
        "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8,
        "intermediate_size": 53248, "vocab_size": 128256, "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    machine = ["--gpus", "8", "--gpu-memory", "80GiB"]
    assert main(["plan", str(tmp_path), *machine]) == 2
    assert "the model does not fit on 8 x 1 devices: each needs 9" in capsys.readouterr().err
    assert main(["plan", str(tmp_path), *machine, "--nodes", "2"]) == 0
    output = capsys.readouterr().out
    assert "parallel    tensor 8, pipeline 2" in output
    assert "tokens fit at once" in output
    assert "each must have joined the Ray cluster" in output
    (memory,) = (line for line in output.splitlines() if line.startswith("memory "))
    assert memory in README.read_text(encoding="utf-8")
    (step,) = (line for line in output.splitlines() if "a step: " in line)
    assert all(part in step for part in ("activations", "outside PyTorch", "CUDA graphs"))


def test_the_backend_is_installed_into_an_existing_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install-backend", str(tmp_path)]) == 0
    assert (tmp_path / "lmi" / "model.py").is_file()
    assert main(["install-backend", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["plan", "/no/such/folder"],
            "is not a folder; accepted: a folder with a serving.properties",
        ),
        (["plan", "/"], "has neither serving.properties nor config.json"),
        (["plan", "/tmp", "--gpus", "-1"], "--gpus -1; accepted: a whole number, 0 to 4096"),
        (["plan", "/tmp", "--gpu-memory", "much"], "--gpu-memory much; accepted: a number and"),
        (["plan", "/tmp", "--gpus", "0", "--gpu-memory", "9G"], "--gpu-memory 9G: there is no GPU"),
        (["drain", "ftp://a"], "accepted: http://HOST:PORT"),
    ],
)
def test_a_fault_is_one_line_and_a_status(
    arguments: list[str], message: str, echo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(echo) if word == "/tmp" else word for word in arguments]
    assert main(words) in (1, 2)
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("command", ["plan", "serve", "convert"])
def test_a_bad_option_is_one_line_with_its_place(
    command: str, echo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (echo / "serving.properties").write_text("\noption.dtype=fp99\n")
    extra = ["--repository", str(tmp_path / "models")] if command == "convert" else []
    ports = ANY_PORTS if command == "serve" else []
    assert main([command, str(echo), *extra, *ports]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("lmi-backend: serving.properties:2: option.dtype=fp99 is unknown; ")
    assert errors.count("\n") == 1
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [(["fly"], 2, "fly"), (["--version"], 0, __version__)],
)
def test_the_command_line_is_checked(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == status
    output = capsys.readouterr()
    assert words in output.out + output.err


LONG = "A" * 1_000_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01\xff" * 100, "serving.properties: is not a text file"),
        (f"option.env={LONG}".encode(), "option.env=*** has an entry that is not NAME=VALUE"),
        (b"option.model_id=org/m\\\n" * 20_000, "is neither a folder nor a hub id"),
        (b"option.model_id=org/\xe9", "is neither a folder nor a hub id"),
        (b"job_queue_size=-1", "job_queue_size=-1 is out of range"),
        (b"option.max_model_len=" + b"9" * 30, "is out of range; accepted: a whole number"),
        (b"option.max_model_len=1e309", "is not a number of tokens"),
        (b"option.dtype=\\uZZZZ", "serving.properties:1: malformed escape"),
        (b"=x", "serving.properties:1: =x is not an option of LMI"),
    ],
)
@pytest.mark.parametrize("command", ["check", "convert"])
def test_bad_input_is_one_clear_message(
    command: str, data: bytes, message: str, echo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (echo / "serving.properties").write_bytes(data)
    repository = echo.parent / "models"
    extra = ["--repository", str(repository)] if command == "convert" else []
    assert main([command, str(echo), *extra]) == 2
    output = capsys.readouterr()
    assert message in output.out + output.err
    assert len(output.out + output.err) < 3000
    assert not repository.exists()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["MAX_NUM_SEQS"], "option.max_rolling_batch_size"),
        (["hf_model_id"], "option.model_id"),
        (["speculative_config.prompt_lookup_max"], "option.ngram_prompt_lookup_max"),
        (["lmi-dist"], "option.record_acceptance_rate"),
        (["TensorRT-LLM"], "option.tokens_per_block"),
        (["kv", "cache"], "option.kv_cache_dtype"),
        (["SM_VLLM_TOOL_PARSER_PLUGIN"], "option.tool_parser_plugin"),
        (["SM_VLLM_NO_ENABLE_PREFIX_CACHING"], "option.enable_prefix_caching"),
        (["tp_size"], "option.tensor_parallel_degree"),
        (["context", "length"], "option.max_model_len"),
        (["tnx"], "option.n_positions"),
        (["--max-model-len=8192"], "option.max_model_len"),
        (["--tp-size", "4", "--context-length", "8192"], "option.max_model_len"),
        (["--no-enable-prefix-caching"], "option.enable_prefix_caching"),
        (["-tp", "2"], "option.tensor_parallel_degree"),
        (["--kv-cache-dtype", "fp8", "--engine", "trtllm"], "option.kv_cache_dtype"),
        (["--engine=vllm", "--", "--kv-cache-dtype"], "option.kv_cache_dtype"),
    ],
)
def test_an_option_is_found_by_any_of_its_names(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["options", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split(" ")[0] == name for line in lines)
    assert len([line for line in lines if not line.startswith(" ")]) < 300


def test_it_is_said_where_a_word_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "tokens_per_block"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("option.tokens_per_block\n")
    assert "under trtllm, with --engine trtllm" in output.err
    assert main(["options", "no_such\x1bword"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert r"no option or variable under vllm has no_such\x1bword in a name" in output.err


@pytest.mark.parametrize("command", ["check", "plan"])
def test_without_a_folder_the_environment_is_looked_at(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SERVING_MODEL_STORE", str(tmp_path / "none"))
    monkeypatch.delenv("PYTHON_EXECUTABLE", raising=False)
    assert main([command]) == 2
    assert "no PATH, and no model in SERVING_LOAD_MODELS" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setenv("SERVING_LOAD_MODELS", f"{tmp_path}/gone")
        assert main([command]) == 2
    assert f"SERVING_LOAD_MODELS: {tmp_path}/gone is not there; acc" in capsys.readouterr().err
    monkeypatch.setenv("HF_MODEL_ID", "org/m")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OPTION_TENSOR_PARALLEL_DEGREE", "2")
    assert main([command, "--gpus", "2"]) == STATUS_WITHOUT_A_HUB[command]
    output = capsys.readouterr().out
    if command == "check":
        expected = "org_m: engine vllm, python mode, 1 worker(s), each tensor parallel 2, pipeline"
        assert output.startswith(expected)
    else:
        assert "model       org/m\n" in output
        assert "parallel    tensor 2, pipeline 1" in output


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("README.md", "README.md is not a folder"),
        (".snapshot/", ".snapshot is hidden"),
        (".DS_Store", ".DS_Store is hidden"),
        ("..data/", "..data is hidden"),
        ("lost+found/", ""),
    ],
)
def test_what_makes_a_folder_of_models_no_store_is_named(
    entry: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store" / "one").mkdir(parents=True)
    (tmp_path / "store" / "one" / "serving.properties").write_text("option.rolling_batch=echo\n")
    place = tmp_path / "store" / entry
    place.mkdir() if entry.endswith("/") else place.touch()
    status = main(["check", str(tmp_path / "store")])
    errors = capsys.readouterr().err
    assert (status == 0) == (not problem)
    assert problem in errors
    assert ("accepted in a store: folders only" in errors) == bool(problem)


def test_each_model_of_a_store_is_looked_at(echo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (echo.parent / "other").mkdir()
    (echo.parent / "other" / "serving.properties").write_text("engine=MPI\noption.dtype=fp99\n")
    assert main(["check", str(echo.parent)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "echo: engine echo, python mode, 1 worker(s), each tensor parallel 1"
    )
    assert "other: engine vllm, mpi mode; it cannot be planned" in lines
    assert main(["check", str(echo.parent), "--json"]) == 2
    assert [row["model"] for row in json.loads(capsys.readouterr().out)] == ["echo", "other"]


def test_a_plan_says_what_it_cannot_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "serving.properties").write_text("option.rolling_batch=echo\n")
    outputs = {}
    for name, more in (("gpus", ["--gpus", "8"]), ("both", ["--gpus", "8", "--gpu-memory", "9G"])):
        assert main(["plan", str(tmp_path), *more]) == 0
        outputs[name] = capsys.readouterr().out
    assert "note        the memory of a GPU is not known, so neither is whether" in outputs["gpus"]
    assert "the memory of a GPU is not known" not in outputs["both"]


def test_a_fleets_server_needs_no_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models"
    monkeypatch.delenv("PYTHON_EXECUTABLE", raising=False)
    variables = {
        "SERVING_MODEL_STORE": str(tmp_path / "none"),
        "HF_MODEL_ID": "org/m",
        "OPTION_ENV": r"A=b c\d",
        "OPTION_SEED": "16",
        "ENABLE_CUDA_GRAPHS": "false",
        "SERVING_JOB_QUEUE_SIZE": "7",
        "TENSOR_PARALLEL_DEGREE": "2",
        "HF_TOKEN": "hf_very_secret",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["convert", "--repository", str(models)]) == 0
    errors = capsys.readouterr().err
    assert "org_m: not written, set where the server runs: HF_TOKEN" in errors
    folder = models / "org_m"
    written = folder / "serving.properties"
    assert written.stat().st_mode & 0o777 == 0o600
    assert "hf_very_secret" not in written.read_text()
    there = load_options(folder, os.environ)
    # Another number, and the folder is converted again: nothing that is written stands against it.
    monkeypatch.setenv("TENSOR_PARALLEL_DEGREE", "1")
    assert main(["convert", "--repository", str(models)]) == 0
    assert "option.tensor_parallel_degree=1" in written.read_text()
    monkeypatch.setenv("TENSOR_PARALLEL_DEGREE", "2")
    assert main(["convert", "--repository", str(models)]) == 0
    for name in variables:
        monkeypatch.delenv(name)
    here = load_options(folder, {})
    assert here.values == there.values
    assert here.values["option.env"] == {"A": r"b c\d"}
    assert here.values["option.enforce_eager"] is True
    assert here.passthrough["seed"].value == "16"
    # As a folder of its own it is kept, and what somebody edits is his.
    assert main(["convert", str(folder), "--repository", str(models)]) == 0
    assert load_options(folder, {}).values == here.values


def test_what_the_environment_says_of_a_folder_follows_its_own_properties(
    echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVING_LOAD_MODELS", f"test::Python={echo}")
    monkeypatch.setenv("OPTION_MAX_ROLLING_BATCH_SIZE", "3")
    (echo / "serving.properties").chmod(0o644)
    before = (echo / "serving.properties").read_text()
    assert main(["convert", "--repository", str(tmp_path / "models")]) == 0
    folder = tmp_path / "models" / "test"
    assert (folder / "serving.properties").read_text().startswith(before)
    assert (echo / "serving.properties").read_text() == before
    assert (folder / "serving.properties").stat().st_mode & 0o777 == 0o644
    made = load_options(folder, {})
    assert made.values["option.max_rolling_batch_size"] == 3
    assert made.values["engine"] == "Python"
    monkeypatch.setenv("OPTION_ENV", "HF_TOKEN=hf_very_secret")
    assert main(["convert", "--repository", str(tmp_path / "models")]) == 0
    assert (folder / "serving.properties").stat().st_mode & 0o777 == 0o600


def test_the_engine_of_an_image_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVING_MODEL_STORE", str(tmp_path / "none"))
    monkeypatch.setenv("HF_MODEL_ID", "org/m")
    monkeypatch.setenv("SERVING_FEATURES", "trtllm")
    assert main(["convert", "--repository", str(tmp_path / "models")]) == 0
    made = load_options(tmp_path / "models" / "org_m", {})
    assert (made.choice.engine, made.choice.mode) == ("trtllm", "python")


FOLDERS = sorted(path for path in GOLDEN.iterdir() if path.is_dir())
HANDLER = "def handle(inputs): ...\n"
OWN = "engine=DeepSpeed\noption.model_type=base\noption.max_tokens=4096\n"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_check_and_plan_end_alike(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in json.loads((folder / "env.json").read_text()).items():
        monkeypatch.setenv(name, value)
    machine = json.loads((folder / "hardware.json").read_text())
    words = [str(folder), "--gpus", str(machine["gpus"]), "--nodes", str(machine.get("nodes", 1))]
    if memory := machine.get("gpu_memory"):
        words += ["--gpu-memory", memory]
    # A plan alone says that it was made without the size of a model.
    assert main(["check", *words]) == main(["plan", *words]) % UNREAD


@pytest.mark.parametrize(
    "text", [OWN, f"{OWN}option.entryPoint=inference.py\n", f"{OWN}option.entryPoint=inference\n"]
)
def test_a_handler_gets_what_no_engine_knows(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "inference.py" if "inference" in text else "model.py"
    (tmp_path / name).write_text(HANDLER)
    (tmp_path / "serving.properties").write_text(text)
    assert main(["check", str(tmp_path), "--json"]) == main(["plan", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out.partition("\nengine ")[0])["options"]
    shown = {row["name"]: f"{row['status']} {row['detail']}" for row in rows}
    assert shown["engine"] == "passed the handler gets it, and used as mode"
    assert shown["option.model_type"] == "passed the handler gets it"
    assert shown["option.max_tokens"] == "passed the handler gets it"


def test_a_store_that_does_not_fit_is_refused_by_check_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        text = "option.rolling_batch=vllm\noption.tensor_parallel_degree=1\n"
        (tmp_path / name / "serving.properties").write_text(text)
        (tmp_path / name / "config.json").write_text(json.dumps(LLAMA_3_8B))
    words = [str(tmp_path), "--gpus", "1", "--gpu-memory", "80GiB"]
    assert main(["check", *words]) == main(["plan", *words]) == 2


def test_a_plan_that_only_this_machine_cannot_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (tmp_path / "serving.properties").write_text("engine=MPI\noption.rolling_batch=echo\n")
    for command in ("check", "plan"):
        assert main([command, str(tmp_path)]) == 2
        assert "MPI mode needs" in capsys.readouterr().out
        assert main([command, str(tmp_path), "--gpus", "1"]) == 0


def test_a_plan_says_how_sure_its_memory_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranges = []
    for kind in ("llama", "llama9_exp"):
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA_3_8B, "model_type": kind}))
        assert main(["plan", str(tmp_path), "--gpus", "1", "--gpu-memory", "80GiB"]) == 0
        output = capsys.readouterr().out
        assert ("llama9_exp is not a known model_type" in output) == (kind != "llama")
        found = re.search(
            r"KV cache per device|\((\d+\.\d) GiB to (\d+\.\d) GiB\) KV cache", output
        )
        assert found
        ranges.append(float(found[2]) - float(found[1]))
    assert 0 < ranges[0] < ranges[1]
