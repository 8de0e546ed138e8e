"""Options of a model on the command line, and what they stand for."""

from pathlib import Path

import pytest

from lmi_backend.cli.flags import key_of, split
from lmi_backend.cli.main import parser
from lmi_backend.cli.planning import UNREAD
from lmi_backend.options import load_options
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import KEYS
from lmi_backend.repository.files import command_line_properties
from lmi_backend.repository.writer import write_model
from tests.support.run.places import TESTS
from tests.support.run.ports import ANY_PORTS
from tests.unit.cli.conftest import Command

LLAMA = TESTS / "golden" / "vllm_starter" / "config.json"


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text(LLAMA.read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("line", "others", "key", "value"),
    [
        ("m --tensor-parallel-size 2", "m", "option.tensor_parallel_size", "2"),
        ("--max_model_len 4096 m", "m", "option.max_model_len", "4096"),
        ("--option.max_model_len 4096 m", "m", "option.max_model_len", "4096"),
        ("--option.new_in_vllm 1 m", "m", "option.new_in_vllm", "1"),
        ("--trust-remote-code m", "m", "option.trust_remote_code", "true"),
        ("--trust-remote-code false m", "m", "option.trust_remote_code", "false"),
        ("--no-enable-prefix-caching m", "m", "option.enable_prefix_caching", "false"),
        ("--seed -1 m", "m", "option.seed", "-1"),
        ("m --lora-modules a=/a b=/b", "m", "option.lora_modules", '["a=/a", "b=/b"]'),
        ("--job_queue_size 7 m", "m", "job_queue_size", "7"),
        ("--minWorkers 2 m", "m", "minWorkers", "2"),
        ("--port 80 --dtype auto m -v", "--port 80 m -v", "option.dtype", "auto"),
        ("--port=80 m --dtype=a=b", "--port=80 m", "option.dtype", "a=b"),
        ("m --compilation-config.level 3", "m", "option.compilation_config.level", "3"),
    ],
)
def test_flags_are_options_and_the_rest_is_the_commands(
    line: str, others: str, key: str, value: str
) -> None:
    (found,) = (each for each in parser()._actions if each.dest == "==SUPPRESS==")
    own = found.choices["serve"]._option_string_actions  # type: ignore[index,call-overload]
    left, flags = split(line.split(), own)
    assert left == others.split()
    assert [(each.key, each.value) for each in flags] == [(key, value)]


def test_every_argument_of_the_engine_and_every_option_is_a_flag() -> None:
    vllm = recorded_signature("vllm")
    assert vllm
    names = [*vllm.arguments, *vllm.server, *vllm.listener, *vllm.opposites]
    assert [name for name in names if not key_of(f"--{name.replace('_', '-')}")] == []
    assert [key for key in KEYS if key_of(f"--{key}") not in (key, f"option.{key}")] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--max-modle-len 5", "--max-modle-len: is neither an option of this command nor of"),
        ("--max-modle-len 5", "did you mean --max-model-len?"),
        ("--jsno", "did you mean --json?"),
        ("--context-length 5", "LMI's name for it is --max-model-len"),
        ("--frobnicate", "`lmi-backend options WORD` finds one"),
        ("--max-model-len", "--max-model-len: its value is missing"),
        ("--dtype --enforce-eager", "--dtype: its value is missing"),
        ("--dtype fp99", "refused: command line: --dtype=fp99 is unknown; accepted: auto"),
        ("--compilation-config.level 3", "accepted: one JSON text, as --compilation-config="),
    ],
)
def test_what_is_no_flag_is_refused_as_it_was_written(
    line: str, message: str, weights: Path, command: Command
) -> None:
    assert message in "".join(command("check", weights, *line.split(), status=2))


def test_a_folder_of_weights_is_served_with_flags(weights: Path, command: Command) -> None:
    words = ["--max-model-len", "512", "--hf-token", "hf_abcdefgh"]
    output = command("check", "weights", *words, "--gpus", "1", "--save", "saved")
    assert "command line           --max-model-len=512" in output.out
    assert f"    option.model_id={weights}\n" in output.err
    assert "hf_abcdefgh" not in output.out + output.err
    saved = Path("saved", "serving.properties")
    assert saved.stat().st_mode & 0o777 == 0o600
    text = f"option.model_id={weights}\noption.max_model_len=512\noption.hf_token=hf_abcdefgh\n"
    assert saved.read_text() == text
    command("check", "saved", "--gpus", "1")
    errors = command("check", "saved", *words, status=2).err
    assert "write option.max_model_len=512 there" in errors
    words = ["weights", "--seed", "1", "--gpus", "0", "--save", "saved"]
    assert "has another serving.properties" in command("plan", *words, status=2).err


def test_a_model_of_the_hub_is_told_from_a_path(weights: Path, command: Command) -> None:
    words = ["--gpus", "1", "--gpu-memory", "80GiB", "--max-model-len", "64"]
    output = command("plan", "Qwen/Qwen3-0.6B", *words, status=UNREAD)
    assert "model       Qwen/Qwen3-0.6B\n" in output.out
    assert "argument    served_model_name=['Qwen/Qwen3-0.6B']\n" in output.out
    assert "    option.model_id=Qwen/Qwen3-0.6B\n" in output.err
    for path, message in (
        ("weights/none", "weights is a folder here: HF_MODEL_ID=weights/none names the model"),
        ("./Qwen/Qwen3", "or a model of the Hub as ORGANISATION/NAME"),
        ("qwen", "or a model of the Hub as ORGANISATION/NAME"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B", "write the id alone, as organisation/model"),
    ):
        assert message in command("plan", path, *words, status=2).err


def test_a_model_of_the_hub_is_converted_and_needs_a_folder_to_be_deployed(
    weights: Path, command: Command
) -> None:
    command("convert", "a/b", "--repository", "models", "--gpus", "1")
    options = load_options(weights.parent / "models" / "a_b", {})
    assert options.values["option.model_id"] == "a/b"
    words = ("a/b", "--to", "compose", "--output", "x", "--gpus", "1")
    errors = command("deploy", *words, status=2).err
    assert "`lmi-backend check a/b --save FOLDER` writes one" in errors


def test_flags_are_for_one_model(weights: Path, command: Command) -> None:
    errors = command("serve", "weights", "a/b", "--seed", "1", *ANY_PORTS, status=2).err
    assert "--seed: is for one model; there are 2" in errors


def test_the_servers_folder_has_the_flags_of_this_start(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "a_b"
    for seed in ("1", "2"):
        _, flags = split(["--option.model_id", "a/b", "--seed", seed], {})
        options = load_options(folder, {}, given=flags)
        more = command_line_properties(flags)
        write_model(folder, folder.parent, "a_b", options, force=True, from_environment=more)
        assert load_options(folder, {}).passthrough["seed"].value == seed
