"""Read a secret of option.env, or of an address, in whatever a person or a machine is shown."""

import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lmi_backend.cli.main import main
from lmi_backend.options import OPTIONS, load_options
from lmi_backend.options.signature import signature
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.pool.command import LaunchContext, WorkerCommand, worker_command
from lmi_backend.pool.process import WorkerProcess
from lmi_backend.redaction import Redactor, is_secret, masked
from tests.support.harm.attackers import ENV, SECRETS
from tests.support.run.waiting import HANG_SECONDS
from tests.support.servers.serving import Served

TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuV"
FORMS = {
    "plain": f"option.env={ENV}\n",
    "continued": "option.env=" + ENV.replace(",", ",\\\n    ") + "\n",
    "escaped": "option.env=" + "".join(f"\\u{ord(each):04x}" for each in ENV) + "\n",
    "quoted": f'option.env="{ENV}"\n',
    "with commas": f"option.env={ENV},{','.join(SECRETS.values())}\n",
}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked for the config.json of org/m, which is nowhere."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def leaks(text: str) -> list[str]:
    return [value for value in SECRETS.values() if value in text]


def folder_with(path: Path, lines: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "serving.properties").write_text(lines, encoding="utf-8")
    return path


def output_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    main(words)
    output = capsys.readouterr()
    return output.out + output.err


@pytest.mark.parametrize("engine", ["echo", "vllm"])
@pytest.mark.parametrize("form", FORMS)
def test_no_command_shows_a_value_of_option_env(
    form: str, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = f"option.rolling_batch={engine}\noption.model_id=org/m\n{FORMS[form]}"
    folder = folder_with(tmp_path / "model", lines)
    repository = str(tmp_path / "models")
    for words in (
        ["check"], ["check", "--json"], ["plan"], ["plan", "--json"],
        ["convert", "--repository", repository],
    ):  # fmt: skip
        output = output_of([words[0], str(folder), *words[1:]], capsys)
        assert output
        assert not leaks(output), words
    written = [path for path in Path(repository).rglob("*") if path.is_file()]
    for path in written:
        if path.name != "serving.properties":
            assert not leaks(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "--json"]], ids=" ".join)
def test_a_doctor_shows_none_either(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By an interpreter without vLLM: what a failed import says is shown as well."""
    monkeypatch.setenv("PYTHON_EXECUTABLE", sys.executable)
    folders = [
        folder_with(
            tmp_path / f"{form}-{engine}".replace(" ", "-"),
            f"option.rolling_batch={engine}\noption.model_id=org/m\n{FORMS[form]}",
        )
        for form in FORMS
        for engine in ("echo", "vllm")
    ]
    output = output_of([*words, *map(str, folders)], capsys)
    assert all(folder.name in output for folder in folders)
    assert not leaks(output)


def test_a_conversion_over_another_shows_neither_s_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = ["--repository", str(tmp_path / "models")]
    output = ""
    for form in ("plain", "continued", "plain"):
        lines = f"option.rolling_batch=echo\noption.x={form}\n{FORMS[form]}"
        folder = folder_with(tmp_path / "model", lines.replace("0123", form))
        output += output_of(["convert", str(folder), *repository], capsys)
    assert "serving.properties has changed" in output
    assert "456789" not in output


@pytest.mark.parametrize("name", ["option.hf_token", "option.model_loader_extra_config"])
def test_a_typed_argument_is_masked_in_a_plan_too(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {
        "option.hf_token": "0123456789-x",
        "option.model_loader_extra_config": '{"a": {"aws_secret_access_key": "0123456789-x"}}',
    }[name]
    lines = f"option.rolling_batch=vllm\noption.model_id=org/m\n{name}={value}\n"
    folder = folder_with(tmp_path, lines)
    for words in (["plan"], ["plan", "--json"], ["check"]):
        output = output_of([words[0], str(folder), *words[1:]], capsys)
        assert "***" in output
        assert "0123456789-x" not in output


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://user:p@ss/word@h/m", "https://***@ss/word@h/m"),
        ("https://hf:secret@hub/m", "https://***@hub/m"),
        ("https://ghp_x@git/m", "https://***@git/m"),
        ("redis://:secret@h/0", "redis://***@h/0"),
        ("s3://b/m?X-Amz-Signature=abc&x=1", "s3://b/m?X-Amz-Signature=***&x=1"),
        ("https://h/m?token=abc&sig=d", "https://h/m?token=***&sig=***"),
        ("https://h/m?max_tokens=12", "https://h/m?max_tokens=12"),
        ('{"headers": {"Authorization": "Basic eA=="}}', '{"headers": {"Authorization": "***"}}'),
        ('{"api_keys": ["a", "b"], "n": 1}', '{"api_keys": ***, "n": 1}'),
        ('{"l": [{"api_key": "a"}, 1]}', '{"l": [{"api_key": "***"}, 1]}'),
        ('{"credentials": {"a": {"b": "c"}, "d": "e"}, "n": 1}', '{"credentials": ***, "n": 1}'),
        ("url=https://h/m?token=abc", "url=https://h/m?token=***"),
        ("--api-key abc --port 1", "--api-key *** --port 1"),
        ("a=1,password=correct horse,b=2", "a=1,password=***,b=2"),
        (f"A=1,HF_TOKEN={TOKEN},B=2", "A=1,HF_TOKEN=***,B=2"),
    ],
)
def test_what_looks_like_a_secret_is_masked_in_any_option(value: str, shown: str) -> None:
    assert masked("option.anything", value) == shown


@pytest.mark.parametrize(
    "name", [*[*SECRETS][:-1], "clientSecret", "apiKey", "DB_PWD", "HF_TOKEN_2"]
)
def test_a_name_tells_a_secret(name: str) -> None:
    assert is_secret(name)


def test_no_option_of_lmi_or_an_engine_is_taken_for_a_secret_wrongly() -> None:
    names = {option.name for option in OPTIONS}
    for engine in ("vllm", "trtllm"):
        known = signature(engine, sys.executable)
        assert known is not None
        names |= set(known.arguments)
    taken = {name for name in names if is_secret(name)}
    assert taken == {"hf_token", "option.use_auth_token", "keystore_pass"}
    for name in ("option.max_tokens", "option.tokenizer", "PWD", "OLDPWD", "SSH_AUTH_SOCK"):
        assert not is_secret(name)


def _plan(tmp_path: Path, lines: str) -> EnginePlan:
    folder = folder_with(tmp_path, lines)
    return make_plan(load_options(folder, {}), {"PATH": ""}, Hardware(), None)


def test_a_worker_s_lines_have_none(tmp_path: Path) -> None:
    lines = "option.rolling_batch=vllm\noption.model_id=org/m\noption.hf_token=a1b2c3d4e5\n"
    plan = _plan(tmp_path, f"{lines}{FORMS['plain']}")
    place = LaunchContext(0, tmp_path, str(tmp_path / "0.sock"), "token")
    command = worker_command(plan, place, os.environ)
    code = (
        "import json, os, urllib.parse as u\n"
        f"for name in {list(SECRETS)}:\n"
        "    value = os.environ[name]\n"
        "    print(value, json.dumps(value), u.quote(value, safe=''))\n"
        "print('a1b2c3d4e5 and https://h/?sig=f00')\n"
        "raise ValueError(os.environ['NOTHING_SAID'])"
    )
    heard: list[str] = []
    argv = (sys.executable, "-c", code)
    process = WorkerProcess(WorkerCommand(argv, command.environment, command.secrets), heard.append)
    process.wait(HANG_SECONDS)
    last = process.last_lines()
    assert last.count("***") > len(SECRETS)
    assert "ValueError: ***" in last
    assert "0123456789" not in last
    assert "a1b2c3d4e5" not in last
    assert "f00" not in last
    assert heard == last.splitlines()
    process.kill()


def test_ordinary_words_of_option_env_stay_readable(tmp_path: Path) -> None:
    words = {"VLLM_ATTENTION_BACKEND": "FLASH_ATTN", "CORES": "0-3|4-7", "HF_HOME": str(tmp_path)}
    redact = Redactor({}, words.items())
    text = f"Using FLASH_ATTN on 0-3|4-7 with {tmp_path}/hub"
    assert redact(text) == text


def test_a_text_loses_what_the_environment_says_is_secret() -> None:
    redact = Redactor({"DB_PASSWORD": "correct horse", "PIN_TOKEN": "short", "NAME": "visible one"})
    text = (
        f"tried correct horse with {TOKEN}, Bearer abcdefgh.ijk, AKIAABCDEFGHIJKLMNOP, visible one"
    )
    assert redact(text) == "tried *** with ***, Bearer ***, ***, visible one"
    assert redact("a short text") == "a short text"


def test_no_command_line_has_a_value(tmp_path: Path) -> None:
    options = " ".join(f"-x '{name}={value}'" for name, value in SECRETS.items())
    plan = _plan(
        tmp_path,
        "engine=MPI\noption.rolling_batch=echo\noption.tensor_parallel_degree=2\n"
        f"option.mpi_options=--mca a b {options} --quiet -x HOME\noption.env=MINE=0123456789-x\n",
    )
    place = LaunchContext(0, tmp_path, str(tmp_path / "0.sock"), "a-secret-token", 29400)
    command = worker_command(plan, place, {})
    words = " ".join(command.argv)
    assert "--mca a b --quiet -x HOME" in words
    assert "0123456789" not in words
    assert "a-secret-token" not in words
    assert SECRETS.items() <= command.environment.items()


def test_the_users_handler_gets_the_values_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def handle(inputs): ...\n", encoding="utf-8")
    plan = _plan(tmp_path, f"option.rolling_batch=echo\n{FORMS['plain']}")
    assert plan.config.properties["env"] == ENV


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, list[str]]]:
    """Our log as the stub has it, and what Triton is told."""
    lines: list[str] = []

    class Logger:
        log_info = log_warn = log_error = staticmethod(lines.append)

    stub = ModuleType("triton_python_backend_utils")
    stub.Logger = Logger  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    monkeypatch.delitem(sys.modules, "lmi_backend.triton.logs", raising=False)
    module = importlib.import_module("lmi_backend.triton.logs")
    root = logging.getLogger("lmi_backend")
    before = root.handlers, root.level, root.propagate
    yield module, lines
    root.handlers, root.level, root.propagate = before
    sys.modules.pop("lmi_backend.triton.logs", None)


def test_the_stub_s_log_and_its_tracebacks_have_none(
    logs: tuple[ModuleType, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, lines = logs
    monkeypatch.setenv("DATABASE_DSN", "0123456789-of-the-server")
    module.attach()
    module.keep_out(load_options(folder_with(tmp_path, FORMS["plain"]), {}).secrets())
    log = logging.getLogger("lmi_backend.test")
    for value in (*SECRETS.values(), "0123456789-of-the-server"):
        log.info("with %s", value)
        try:
            int(value)
        except ValueError:
            log.exception("failed")
    assert len(lines) == 2 * (len(SECRETS) + 1)
    assert "0123456789" not in "".join(lines)
    assert "0123456789" not in module.redacted(" ".join(SECRETS.values()))


def test_a_served_model_shows_none(opened: tuple[Served, str]) -> None:
    """From the command line to the last process: logs, argv, the answers of Triton."""
    served, _ = opened
    lines = [" ".join(each.cmdline()) for each in served.family()]
    assert any("lmi_backend.worker.main" in line for line in lines)
    assert not leaks("\n".join(lines))
    status, answer = served.generate("secretive", {"inputs": "x"})
    assert status != 200
    assert "cannot use ***" in json.dumps(answer)
    served.logged(r"seen \*\*\*")
    assert not leaks(served.log())
