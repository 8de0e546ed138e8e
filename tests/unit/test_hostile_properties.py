"""Hostile and odd properties and variables are answered in short lines, never by a traceback."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.options import OPTIONS
from lmi_backend.options.spec import SPECS
from lmi_backend.options.table import KEYS, VARIABLES
from tests.support.records.plans import CONFIG

COUNT = 120
LONG = "a" * 300
# What a name, a number, a list, JSON, a path, a template or a command line may be mistaken for.
WORDS = """
    0 -1 1 2 3 8 true maybe 999999999999 1e309 nan -inf ² ٣ 1_000 32k {} [] { [ null =x , a=b , ;
    0;0 gpu0 * ~ ~nobody/x .. / // /dev/zero s3:// s3://b djl://x %s %d ${x} org/m vllm lmi-dist
    trtllm disable auto echo tnx MPI DeepSpeed max fp8 int8 model.py x.py ' " -x 1.2.3.4/8 ::/0
"""
VALUES = [
    *WORDS.split(), "9" * 30, "9" * 5000, LONG, f"/{LONG}", "a/" * 3000, f"{{% x %}}{LONG}",
    "[" * 100_000, '{"a":' * 100_000, '{"a": 1}', '{"model": 5}', '[{"a": 1}]', "a b", "'unclosed",
    '{"model": "s3://b/c"}', "awq   # remark", r"\u202e", r"\u001b[31m", r"\n\n", r"\u0000",
    r"\ud800", "eyJ-" * 30_000, "--a   " * 20_000, "://" * 40_000, "secret" * 20_000,
]  # fmt: skip
NAMES = [*KEYS, "option.seed", "option.foo", "foo", "option.", f"option.{LONG}", r"o\u001bp"]
ENVIRONMENT = sorted(
    {name for row in OPTIONS for name in row.variables}
    | {name.replace("*", "X") for name in VARIABLES}
    | {"VLLM_CPU_KVCACHE_SPACE", "CUDA_VISIBLE_DEVICES", "HF_MODEL_ID", "SERVING_MODEL_STORE"}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run a command on a folder with these properties; what was answered has the usual form."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("PYTHON_EXECUTABLE", raising=False)

    def answer(properties: str, command: str = "check", *more: str) -> tuple[int, str]:
        (folder / "serving.properties").write_text(properties, encoding="utf-8")
        status = main([command, str(folder), *more])
        output = capsys.readouterr()
        text = output.out + output.err
        assert "Traceback" not in text, (properties[:500], text[-2000:])
        assert status in (0, 2)
        assert all(line.isprintable() for line in text.split("\n")), text
        assert len(text) < 20_000
        return status, text

    return answer


def test_whatever_is_written_is_answered(
    run: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(20)
    engines = [spec.rolling_batch for spec in SPECS.values()]
    commands = [
        ["check"],
        ["check", "--json"],
        ["plan", "--gpus", "8", "--gpu-memory", "80GiB", "--nodes", "5"],
        ["convert", "--force", "--repository", str(tmp_path / "models")],
    ]
    statuses = []
    for _ in range(COUNT):
        config = tmp_path / "config.json"
        config.write_text(json.dumps(CONFIG if chance.random() < 0.8 else chance.choice(VALUES)))
        lines = [f"option.rolling_batch={chance.choice(engines)}", "option.enable_lora=true"]
        lines += [f"{chance.choice(NAMES)}={chance.choice(VALUES)}" for _ in range(2)]
        with monkeypatch.context() as variables:
            value = chance.choice(VALUES)[:100_000]
            variables.setenv(chance.choice(ENVIRONMENT), value)
            statuses.append(run("\n".join(lines), *chance.choice(commands))[0])
    # Both happen often, or this would prove nothing.
    assert min(map(statuses.count, (0, 2))) > COUNT / 20


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("k" * 1_000_000 + "=1", "k… (1000000 characters)=*** is not an option of LMI"),
        ("option." + "k" * 1_000_000 + "=1", "k… (1000007 characters)=*** is not an option"),
        ("option.dtype=" + "k" * 121_000, "k… (121000 characters) is unknown; accepted: auto"),
        ("\n".join(f"option.no_{n}=1" for n in range(10_000)), "has 10000 keys; accepted: at most"),
        ("\n".join(f"no_{n}=1" for n in range(999)), "serving.properties:999: no_998=1 is not an"),
        ("a\\\n" * 1_000_000, "is not an option of LMI"),
        ("#" * 5_000_000, "is too large; accepted: at most 4.0 MiB"),
        (r"option.model_id=a\u0000b", r"serving.properties:1: \u0000 is not a valid character"),
        ("option.foo\x1b[31m=1", r"option.foo\x1b[31m=1 is not an option of LMI"),
        ("option.model_id=a/b\x1b[31m", r"option.model_id=a/b\x1b[31m is neither a folder"),
        (
            "option.enable_lora=true\noption.adapters=" + "a/" * 500_000,
            "is not a folder's name; accepted",
        ),
        (f"option.speculative_config={'[' * 100_000}", "is JSON that is nested too deeply"),
    ],
)
def test_what_is_too_much_is_cut(
    properties: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "serving.properties").write_text(properties, encoding="utf-8")
    assert main(["check", str(folder)]) == 2
    found = capsys.readouterr()
    assert message in found.out + found.err
    assert "Traceback" not in found.err
    assert len(found.out + found.err) < 300_000


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("option.tensor_parallel_degree=999999999999", "is out of range; accepted: max or a whole"),
        ("option.tensor_parallel_degree=4096", "needs 4096 devices (4096 x 1); 8 usable"),
        ("option.tensor_parallel_degree=8", "does not divide the model's 4 attention heads"),
        ("minWorkers=999999999999", "is out of range; accepted: a whole number, 1 to 4096"),
        ("option.cluster_size=999999999999", "is out of range"),
    ],
)
def test_devices_are_looked_at_before_they_are_divided(
    lines: str, message: str, run: Callable[..., tuple[int, str]]
) -> None:
    assert message in run(lines, "plan", "--gpus", "8", "--gpu-memory", "80GiB")[1]


@pytest.mark.parametrize(
    ("line", "is_remark"),
    [
        ("option.quantize=awq   # as published", True),
        ("option.max_model_len=4096 #tokens", True),
        ("option.seed=16 # for tests", True),
        ("option.task=embed # vectors", True),
        ("option.chat_template={% if a %} # {{ b }}", False),
        ("option.chat_template={{ a }} # b", False),
        ("option.quantize=a#b", False),
        ("option.env=A=b # c", False),
        ('option.hf_overrides={"a": " # b"}', False),
    ],
)
def test_a_remark_behind_a_value_is_named(
    line: str, is_remark: bool, run: Callable[..., tuple[int, str]]
) -> None:
    output = run(line)[1]
    assert ("has a remark at its end, which is a part of the value here" in output) == is_remark


@pytest.mark.parametrize(
    "size", ["80", "0GiB", "much", "9" * 400 + "GiB", "-1GiB", "80B", "80\x1bG"]
)
def test_a_size_without_its_unit_is_refused(
    size: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(folder), "--gpus", "1", f"--gpu-memory={size}"]) == 2
    errors = capsys.readouterr().err
    assert "accepted: a number and a unit, such as 80GiB" in errors
    assert errors.count("\n") == 1
    assert errors.strip().isprintable()
    assert len(errors) < 500


def test_a_text_that_is_no_path_is_read_as_what_it_is(run: Callable[..., tuple[int, str]]) -> None:
    template = "{% for message in messages %}{{ message }}" + "x" * 300 + "{% endfor %}"
    assert run(f"option.chat_template={template}")[0] == 0
    for name in ("model_id", "lmcache_config_file", "adapter_roots", "pythonExecutable"):
        status, output = run(f"option.enable_lora=true\noption.{name}={LONG}")
        assert (status, f"refused: serving.properties:2: option.{name}=aaa" in output) == (2, True)
    assert "is not a file" in run(f"option.entryPoint={LONG}.py")[1]
