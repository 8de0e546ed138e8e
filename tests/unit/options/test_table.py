import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import lmi_backend
from lmi_backend.cli import serve
from lmi_backend.cli.arguments import Parser
from lmi_backend.options import OPTIONS
from lmi_backend.options.classification import status_of
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.spec import Option, implementation_of
from lmi_backend.options.table import ENGINES, KEYS, VARIABLES, find_option


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_has_one_row_under_an_engine(engine: str) -> None:
    for key, rows in KEYS.items():
        found = [row for row in rows if engine in row.engines]
        best = [row for row in found if len(row.engines) == len(found[0].engines)]
        assert len(best) <= 1, key
        assert find_option(key, engine) in (*best, None)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_variable_means_two_options_under_an_engine(engine: str) -> None:
    live = [row for row in OPTIONS if row is find_option(row.name, engine)]
    names = Counter(name for row in live for name in {*row.variables} - {*row.overriding_env})
    assert [name for name, count in names.items() if count > 1] == []
    assert not set(names) & set(VARIABLES) - {"SERVING_LOAD_MODELS"}


def test_every_row_is_whole() -> None:
    assert [f"{row.scope} {row.name}" for row in OPTIONS if not _is_whole(row)] == []


def _is_whole(row: Option[object]) -> bool:
    return bool(
        row.help.endswith((".", ")"))
        and row.kind.accepted
        and (row.status == "mapped") == (row.reason == "")
        and all(row.status_under(engine).detail for engine in row.engines)
    )


def test_defaults_are_of_the_kind_they_document() -> None:
    for option in OPTIONS:
        for default in (option.default, option.lmi_default):
            if default not in ("", 0, {}, 0.0, None, []) and not isinstance(default, list):
                assert option.kind.parse(str(default)) == default


def test_what_an_ended_option_points_to_is_not_ended_too() -> None:
    for option in OPTIONS:
        for key in re.findall(r"option\.\w+", option.reason):
            row = find_option(key, option.engines[0])
            assert row is None or row.status == "mapped", option.name


PACKAGE = Path(lmi_backend.__file__).parent
NAMED = re.compile(r"\boption\.(\w+)(?:=([\w.{\"-]+))?")


def _texts() -> Iterator[tuple[str, str]]:
    """Yield file and text of each literal of the package, and of each row of the table."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(file.relative_to(PACKAGE)), node.value
    for engine in ENGINES:
        signature = recorded_signature(implementation_of(engine))
        for key in KEYS:
            yield f"{key} under {engine}", status_of(key, engine, signature).detail


def test_what_a_text_tells_people_to_write_exists() -> None:
    """A hint to an option that is none, or to a value that it refuses, is worse than none."""
    arguments = {
        name
        for engine in ENGINES
        if (record := recorded_signature(implementation_of(engine)))
        for name in (*record.arguments, *record.server)
    }
    wrong = [
        (place, found[0])
        for place, text in _texts()
        for found in NAMED.finditer(text)
        if not _is_there(found[1], found[2], arguments) and not found[1].endswith("_")
    ]
    assert wrong == []


def _is_there(name: str, value: str | None, arguments: set[str]) -> bool:
    rows = KEYS.get(f"option.{name}", [])
    if value is None or not rows:
        return bool(rows) or name in arguments
    return any(row.status == "mapped" and row.can_read(value.rstrip(".")) for row in rows)


def test_a_flag_that_a_reason_names_is_one_of_serve() -> None:
    reasons = [row.reason for row in OPTIONS] + [status.detail for status in VARIABLES.values()]
    flags = {flag for reason in reasons for flag in re.findall(r"--[a-z-]+", reason)}
    commands = Parser().add_subparsers()
    serve.add_commands(commands)
    known = commands.choices["serve"].format_help()
    # Triton's own flags, and what any command has.
    others = {"--exit-on-error", "--strict-readiness", "--help"}
    assert len(flags) > 5
    assert not [flag for flag in flags - others if f" {flag} " not in known]


@pytest.mark.parametrize(
    ("key", "engine", "reason"),
    [
        ("option.enable_streaming", "vllm", "the request says whether to stream"),
        ("option.paged_attention", "vllm", "vLLM's KV cache is always paged"),
        ("option.save_mp_checkpoint_path", "deepspeed", "only LMI's partition command reads it"),
        ("option.gpu_memory_utilization", "trtllm", "it is an option of vllm"),
        ("option.checkpoint", "vllm", "there it is refused: DeepSpeed's own checkpoints are not"),
        ("option.is_peft_model", "vllm", "there too it is ignored: adapter_config.json says it"),
        ("option.device_map", "vllm", "(option.rolling_batch=disable chooses transformers)"),
        ("normalize", "vllm", "vLLM's embeddings have option.normalize"),
        ("certificate_file", "vllm", "serve --tls-certificate and --tls-key say it"),
        ("nc.minWorkers", "vllm", "on Neuron cores only these engines run: vllm-neuron"),
    ],
)
def test_a_reason_is_true_for_the_engine_it_is_said_of(key: str, engine: str, reason: str) -> None:
    signature = recorded_signature(implementation_of(engine))
    assert reason in status_of(key, engine, signature).detail


def test_what_is_said_to_be_gone_from_vllm_is_gone() -> None:
    record = recorded_signature("vllm")
    assert record is not None
    gone = [row.name for row in OPTIONS if row.reason == "vLLM no longer has it"]
    assert len(gone) > 15
    assert not [name for name in gone if name.removeprefix("option.") in record.arguments]


def test_each_variable_is_one_that_a_shell_can_set() -> None:
    names = [name for row in OPTIONS for name in row.variables]
    assert not [name for name in names if not re.fullmatch(r"[A-Za-z_]\w*", name)]
