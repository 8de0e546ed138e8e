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
from tests.support.run.places import ROOT
from tests.support.run.ports import ANY_PORTS
from tests.support.servers.serving import write_properties
from tests.unit.cli.conftest import Command
from tests.unit.sizing.test_model_facts import LLAMA_3_8B

README = ROOT / "README.md"
GOLDEN = ROOT / "tests" / "golden"
STATUS_WITHOUT_A_HUB = {"check": 0, "plan": UNREAD}
ECHO = {"option.rolling_batch": "echo"}


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    return write_properties(tmp_path / "echo", ECHO | {"option.swap_space": 4})


def test_plan_says_what_and_why(echo: Path, command: Command) -> None:
    output = command("plan", echo).out
    assert "engine      echo" in output
    assert "note        serving.properties:2: option.swap_space=4 is ignored" in output
    output = command("plan", echo / "serving.properties", "--json").out
    assert json.loads(output)["engine"] == "echo"


def test_convert_writes_a_model_under_the_folders_name(
    echo: Path, tmp_path: Path, command: Command
) -> None:
    output = command("convert", echo, "--repository", tmp_path / "models")
    assert output.out.strip() == str(tmp_path / "models" / "echo")
    assert "lmi-backend: echo: serving.properties:2: option.swap_space=4 is ignored" in output.err
    assert (tmp_path / "models" / "echo" / "config.pbtxt").is_file()
    command("convert", echo, "--repository", tmp_path, "--name", "mine")
    assert 'name: "mine"' in (tmp_path / "mine" / "config.pbtxt").read_text()


def test_a_plan_shows_what_the_engine_is_given(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    lines = ("option.model_id=org/m", "option.tensor_parallel_degree=2", "option.seed=16")
    (tmp_path / "serving.properties").write_text("\n".join(lines))
    output = command("plan", tmp_path, status=UNREAD).out
    assert "workers     2 on GPU 0,1; 2,3\nparallel    tensor 2, pipeline 1\n" in output
    assert "argument    tensor_parallel_size=2\n" in output
    assert "argument    seed=16\n" in output


def test_options_are_listed_and_filtered(command: Command) -> None:
    output = command("options", "tensor_parallel").out
    assert "option.tensor_parallel_degree\n" in output
    assert "TENSOR_PARALLEL_DEGREE" in output
    assert "job_queue_size" not in output
    output = command("options", "--engine", "trtllm", "--json").out
    rows = {row["name"]: row for row in json.loads(output)}
    assert rows["option.tokens_per_block"]["detail"] == "trtllm kv_cache_config.tokens_per_block"
    assert rows["option.tokenizer_mode"]["status"] == "passed"
    assert rows["option.bedrock_compat"]["status"] == "refused"
    assert rows["SERVING_FEATURES"]["status"] == "mapped"
    assert "option.swap_space" not in rows


def test_check_shows_the_fate_of_everything(
    echo: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVING_JOB_QUEUE_SIZE", "7")
    output = command("check", echo).out
    assert "serving.properties:1   option.rolling_batch=echo mapped   used as engine" in output
    assert "environment            SERVING_JOB_QUEUE_SIZE=7  mapped   used as queue_size" in output
    rows = json.loads(command("check", echo, "--json").out)["options"]
    assert [row["status"] for row in rows if row["name"] == "option.swap_space"] == ["ignored"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["serv"], 2, "did you mean serve?"),
        (["bench"], 2, "AIPerf"),
        (["deploy", "x", "--output=y", "--to=kubernets"], 2, "did you mean kubernetes?"),
        (["fly"], 2, "fly"),
        (["--version"], 0, __version__),
    ],
)
def test_the_command_line_is_checked_and_a_word_that_is_nearly_one_of_ours_is_named(
    words: list[str], status: int, text: str, command: Command
) -> None:
    printed = command(*words, status=status)
    assert text in (printed.err if status else printed.out)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("load_on_devices=9", "load_on_devices=9         refused  names a device twice or"),
        ("max_idle_time=9", "max_idle_time=9           ignored  1 worker(s) run all the time"),
        ("option.max_idle_time=9", "option.max_idle_time=9    ignored  1 worker(s) run all the"),
    ],
)
def test_check_says_of_an_option_what_the_plan_says(
    text: str, line: str, echo: Path, command: Command
) -> None:
    (echo / "serving.properties").write_text(f"option.rolling_batch=echo\n{text}\n")
    status = 2 if " refused " in line else 0
    output = command("check", echo, "--gpus", "1", status=status).out
    assert f"serving.properties:2   {line}" in output


def test_check_finds_every_fault_at_once(echo: Path, command: Command) -> None:
    text = "option.dtype=fp99\noption.translator=a\njob_queue_size=-1\noption.max_modle_len=1"
    (echo / "serving.properties").write_text(f"option.model_id=a/b\n{text}\ntranslator=x\n")
    output = command("check", echo, status=2).out
    assert "refused: serving.properties:2: option.dtype=fp99 is unknown; accepted: auto" in output
    assert "refused: serving.properties:4: job_queue_size=-1 is out of range" in output
    assert "refused: serving.properties:6: translator=x is not supported" in output
    assert "did you mean option.max_model_len?" in output


def test_another_machine_and_release_are_supposed(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "m"
    model = {"option.rolling_batch": "vllm", "option.model_id": "org/m", "load_on_devices": 0}
    write_properties(folder, model)
    convert = ("convert", folder, "--repository", tmp_path / "models")
    assert "load_on_devices=0 names a device" in command(*convert, status=2).err
    output = command(*convert, "--gpus", "1", "--engine-version", "0.26.0")
    assert "planned for vLLM 0.26.0" in output.err
    for name, status in STATUS_WITHOUT_A_HUB.items():
        words = (name, folder, "--gpus", "1", "--engine-version")
        output = command(*words, "v0.26.0", status=status)
        assert "planned for vLLM 0.26.0, as --engine-version says" in output.out
        for word in ("new", "26", "latest"):
            output = command(name, folder, "--engine-version", word, status=2)
            assert f"--engine-version {word}; accepted: a release" in output.err
    command("options", "kda_decode_backend", "--engine-version", "0.26.0", status=1)


def test_a_store_is_converted_whole_or_not_at_all(tmp_path: Path, command: Command) -> None:
    store, models = tmp_path / "store", tmp_path / "models"
    for name in ("a", "b", "c"):
        write_properties(store / name, ECHO)
    write_properties(store / "b", {"option.dtype": "fp99"})
    convert = ("convert", store, "--repository", models)
    output = command(*convert, status=2)
    assert f"{store / 'b'}: serving.properties:1: option.dtype=fp99" in output.err
    assert not models.exists()
    write_properties(store / "b", ECHO)
    command(*convert)
    assert sorted(path.name for path in models.iterdir()) == ["a", "b", "c"]
    command(*convert, "--name", "x", status=2)


def test_an_error_of_the_engines_choice_hides_no_other(
    echo: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEMAKER_SECURE_MODE", "true")
    monkeypatch.setenv("SERVING_JOB_QUEUE_SISE", "3")
    text = "engine=MPI\noption.mpi_mode=false\njob_queue_size=x\noption.max_modle_len=1\n"
    (echo / "serving.properties").write_text(text)
    output = command("check", echo, status=2).out
    assert output.count("\nrefused: ") == 4
    assert "did you mean SERVING_JOB_QUEUE_SIZE?" in output


def test_a_plan_can_suppose_another_machine(tmp_path: Path, command: Command) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16384,
        "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8,
        "intermediate_size": 53248, "vocab_size": 128256, "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = ("plan", tmp_path, "--gpus", "8", "--gpu-memory", "80GiB")
    errors = command(*plan, status=2).err
    assert "the model does not fit on 8 x 1 devices: each needs 9" in errors
    output = command(*plan, "--nodes", "2").out
    assert "parallel    tensor 8, pipeline 2" in output
    assert "tokens fit at once" in output
    assert "each must have joined the Ray cluster" in output
    (memory,) = (line for line in output.splitlines() if line.startswith("memory "))
    assert memory in README.read_text(encoding="utf-8")
    (step,) = (line for line in output.splitlines() if "a step: " in line)
    assert all(part in step for part in ("activations", "outside PyTorch", "CUDA graphs"))


def test_the_backend_is_installed_into_an_existing_folder(tmp_path: Path, command: Command) -> None:
    command("install-backend", tmp_path)
    assert (tmp_path / "lmi" / "model.py").is_file()
    assert "is not a folder" in command("install-backend", tmp_path / "none", status=2).err


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
    arguments: list[str], message: str, echo: Path, command: Command
) -> None:
    words = [echo if word == "/tmp" else word for word in arguments]
    errors = command(*words, status=2).err
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("name", ["plan", "serve", "convert"])
def test_a_bad_option_is_one_line_with_its_place(
    name: str, echo: Path, tmp_path: Path, command: Command
) -> None:
    (echo / "serving.properties").write_text("\noption.dtype=fp99\n")
    into = ("--repository", tmp_path / "models")
    more = {"convert": into, "serve": ANY_PORTS}.get(name, ())
    errors = command(name, echo, *more, status=2).err
    assert errors.startswith("lmi-backend: serving.properties:2: option.dtype=fp99 is unknown; ")
    assert errors.count("\n") == 1
    assert not (tmp_path / "models").exists()


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
@pytest.mark.parametrize("name", ["check", "convert"])
def test_bad_input_is_one_clear_message(
    name: str, data: bytes, message: str, echo: Path, command: Command
) -> None:
    (echo / "serving.properties").write_bytes(data)
    repository = echo.parent / "models"
    more = ("--repository", repository) if name == "convert" else ()
    output = "".join(command(name, echo, *more, status=2))
    assert message in output
    assert len(output) < 3000
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
    words: list[str], name: str, command: Command
) -> None:
    lines = command("options", *words).out.splitlines()
    assert any(line.split(" ")[0] == name for line in lines)
    assert len([line for line in lines if not line.startswith(" ")]) < 300


def test_it_is_said_where_a_word_finds_nothing(command: Command) -> None:
    output = command("options", "tokens_per_block")
    assert output.out.startswith("option.tokens_per_block\n")
    assert "under trtllm, with --engine trtllm" in output.err
    output = command("options", "no_such\x1bword", status=1)
    assert output.out == ""
    assert r"no option or variable under vllm has no_such\x1bword in a name" in output.err


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("check", r"org_m: engine vllm, python mode, 1 worker\(s\), each tensor parallel 2, pipel"),
        ("plan", r"(.*\n)*model       org/m\n(.*\n)*parallel    tensor 2, pipeline 1\n"),
    ],
)
def test_without_a_folder_the_environment_is_looked_at(
    name: str, plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("SERVING_MODEL_STORE", str(tmp_path / "none"))
    errors = command(name, status=2).err
    assert "no PATH, and no model in SERVING_LOAD_MODELS" in errors
    with monkeypatch.context() as patch:
        patch.setenv("SERVING_LOAD_MODELS", f"{tmp_path}/gone")
        errors = command(name, status=2).err
    assert f"SERVING_LOAD_MODELS: {tmp_path}/gone is not there; acc" in errors
    monkeypatch.setenv("HF_MODEL_ID", "org/m")
    monkeypatch.setenv("OPTION_TENSOR_PARALLEL_DEGREE", "2")
    output = command(name, "--gpus", "2", status=STATUS_WITHOUT_A_HUB[name]).out
    assert re.match(plan, output)


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
    entry: str, problem: str, tmp_path: Path, command: Command
) -> None:
    write_properties(tmp_path / "store" / "one", ECHO)
    place = tmp_path / "store" / entry
    place.mkdir() if entry.endswith("/") else place.touch()
    errors = command("check", tmp_path / "store", status=2 if problem else 0).err
    assert problem in errors
    assert ("accepted in a store: folders only" in errors) == bool(problem)


def test_each_model_of_a_store_is_looked_at(echo: Path, command: Command) -> None:
    write_properties(echo.parent / "other", {"engine": "MPI", "option.dtype": "fp99"})
    lines = command("check", echo.parent, status=2).out.splitlines()
    plan = "echo: engine echo, python mode, 1 worker(s), each tensor parallel 1"
    assert lines[0].startswith(plan)
    assert "other: engine vllm, mpi mode; it cannot be planned" in lines
    rows = json.loads(command("check", echo.parent, "--json", status=2).out)
    assert [row["model"] for row in rows] == ["echo", "other"]


def test_a_plan_says_what_it_cannot_say(echo: Path, command: Command) -> None:
    text = "the memory of a GPU is not known"
    plan = ("plan", echo, "--gpus", "8")
    assert f"note        {text}, so neither is whether" in command(*plan).out
    assert text not in command(*plan, "--gpu-memory", "9G").out


def test_a_fleets_server_needs_no_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    models = tmp_path / "models"
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
    errors = command("convert", "--repository", models).err
    assert "org_m: not written, set where the server runs: HF_TOKEN" in errors
    folder = models / "org_m"
    written = folder / "serving.properties"
    assert written.stat().st_mode & 0o777 == 0o600
    assert "hf_very_secret" not in written.read_text()
    there = load_options(folder, os.environ)
    # Another number, and the folder is converted again: nothing that is written stands against it.
    for number in ("1", "2"):
        monkeypatch.setenv("TENSOR_PARALLEL_DEGREE", number)
        command("convert", "--repository", models)
        assert f"option.tensor_parallel_degree={number}" in written.read_text()
    for name in variables:
        monkeypatch.delenv(name)
    here = load_options(folder, {})
    assert here.values == there.values
    assert here.values["option.env"] == {"A": r"b c\d"}
    assert here.values["option.enforce_eager"] is True
    assert here.passthrough["seed"].value == "16"
    # As a folder of its own it is kept, and what somebody edits is his.
    command("convert", folder, "--repository", models)
    assert load_options(folder, {}).values == here.values


def test_what_the_environment_says_of_a_folder_follows_its_own_properties(
    echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("SERVING_LOAD_MODELS", f"test::Python={echo}")
    monkeypatch.setenv("OPTION_MAX_ROLLING_BATCH_SIZE", "3")
    original = echo / "serving.properties"
    original.chmod(0o644)
    before = original.read_text()
    command("convert", "--repository", tmp_path / "models")
    folder = tmp_path / "models" / "test"
    copy = folder / "serving.properties"
    assert copy.read_text().startswith(before)
    assert original.read_text() == before
    assert copy.stat().st_mode & 0o777 == 0o644
    made = load_options(folder, {})
    assert made.values["option.max_rolling_batch_size"] == 3
    assert made.values["engine"] == "Python"
    monkeypatch.setenv("OPTION_ENV", "HF_TOKEN=hf_very_secret")
    command("convert", "--repository", tmp_path / "models")
    assert copy.stat().st_mode & 0o777 == 0o600


def test_the_engine_of_an_image_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("SERVING_MODEL_STORE", str(tmp_path / "none"))
    monkeypatch.setenv("HF_MODEL_ID", "org/m")
    monkeypatch.setenv("SERVING_FEATURES", "trtllm")
    command("convert", "--repository", tmp_path / "models")
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
def test_a_handler_gets_what_no_engine_knows(text: str, tmp_path: Path, command: Command) -> None:
    name = "inference.py" if "inference" in text else "model.py"
    (tmp_path / name).write_text(HANDLER)
    (tmp_path / "serving.properties").write_text(text)
    command("plan", tmp_path)
    rows = json.loads(command("check", tmp_path, "--json").out)["options"]
    shown = {row["name"]: f"{row['status']} {row['detail']}" for row in rows}
    assert shown["engine"] == "passed the handler gets it, and used as mode"
    assert shown["option.model_type"] == "passed the handler gets it"
    assert shown["option.max_tokens"] == "passed the handler gets it"


def test_a_store_that_does_not_fit_is_refused_by_check_too(
    tmp_path: Path, command: Command
) -> None:
    for name in ("a", "b"):
        model = {"option.rolling_batch": "vllm", "option.tensor_parallel_degree": 1}
        folder = write_properties(tmp_path / name, model)
        (folder / "config.json").write_text(json.dumps(LLAMA_3_8B))
    for name in ("check", "plan"):
        command(name, tmp_path, "--gpus", "1", "--gpu-memory", "80GiB", status=2)


def test_a_plan_that_only_this_machine_cannot_start(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    write_properties(tmp_path, {"engine": "MPI"} | ECHO)
    for name in ("check", "plan"):
        assert "MPI mode needs" in command(name, tmp_path, status=2).out
        command(name, tmp_path, "--gpus", "1")


def test_a_plan_says_how_sure_its_memory_is(tmp_path: Path, command: Command) -> None:
    ranges = []
    for kind in ("llama", "llama9_exp"):
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA_3_8B, "model_type": kind}))
        output = command("plan", tmp_path, "--gpus", "1", "--gpu-memory", "80GiB").out
        assert ("llama9_exp is not a known model_type" in output) == (kind != "llama")
        found = re.search(r"\((\d+\.\d) GiB to (\d+\.\d) GiB\) KV cache per device", output)
        assert found
        ranges.append(float(found[2]) - float(found[1]))
    assert 0 < ranges[0] < ranges[1]
