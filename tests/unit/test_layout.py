"""tests/unit mirrors the package: module a/b.py is tested in a/test_b.py, a tool in tools/."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parents[1]
FILES = {str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")}

# What is of no single module stands at the root, for this reason.
OF_SEVERAL = {
    "test_cost.py": "what a token costs: worker, ipc, serving and triton",
    "test_docs_for_contributors.py": "pages of docs/ for contributors: what they name",
    "test_dockerfile.py": "Dockerfile, and what of the package it names",
    "test_engine_token_cost.py": "what a token costs from vLLM on: the vLLM engine and worker",
    "test_expressions.py": "every regular expression of the package",
    "test_failed_answers.py": "how an answer that fails ends: every path of the front end",
    "test_fuzz.py": "hostile bodies through schema and into frames",
    "test_hostile_properties.py": "whatever may be written: options, plan, repository and commands",
    "test_golden.py": "a folder, its plan and the command of a worker: options, plan and pool",
    "test_imports.py": "each module, in its process",
    "test_layout.py": "each test file",
    "test_one_name.py": "every public class of the package",
    "test_published_logs.py": "every start of the published logs: options, plan and sizing",
    "test_published_models.py": "published config.json files and logs: all of sizing",
    "test_round_trip.py": "what deploy writes, read and planned again: cli, deploy and plan",
    "test_json_places.py": "each place that reads a client's JSON",
    "test_lmi_answers.py": "what LMI's own handlers answer: clients and the vLLM engine",
    "test_lmi_options.py": "lmi_options.csv: options and what the plan does with them",
    "test_migration_guide.py": "docs/migrating-from-lmi.md: options and plan",
    "test_neuron.py": "models for Neuron: options, plan and the command of a worker",
    "test_readme.py": "README.md: its commands, links and facts",
    "test_bounds.py": "docs/reliability.md: the table of bounds",
    "test_release_planned_for.py": "the engine that is installed: options, plan, check and doctor",
    "test_request_cost.py": "what a request costs besides its tokens: the whole front end",
    "test_refusals.py": "what is refused before an answer: every path of the front end",
    "test_security.py": "docs/security.md: rules for each module and command",
    "test_security_policy.py": "SECURITY.md, the lock and the table of releases",
    "test_unseen_models.py": "config.json files of models without a log: all of sizing",
    "test_wire.py": "tests/wire: every client's requests and answers, through schema",
}


def module_of(file: str) -> Path:
    """Return the module or package that a test file is of, if it is there."""
    path = Path(file)
    root = ROOT if path.parts[0] == "tools" else ROOT / "lmi_backend"
    module = root / path.parent / path.name.removeprefix("test_")
    return module if module.is_file() else module.with_suffix("") / "__init__.py"


@pytest.mark.parametrize("file", sorted(FILES - OF_SEVERAL.keys()))
def test_a_test_file_has_its_module(file: str) -> None:
    assert module_of(file).is_file()


def test_what_is_of_several_modules_stands_at_the_root_and_is_of_none() -> None:
    assert OF_SEVERAL.keys() <= FILES
    assert not [file for file in OF_SEVERAL if "/" in file or module_of(file).is_file()]


def test_a_line_of_a_server_that_runs_is_waited_for() -> None:
    """`Served.logged` waits: a line comes after the state that it tells. CI failed for one."""
    for path in TESTS.parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("read_"):
                is_read = isinstance(node.value, ast.Attribute) and node.value.attr == "log_file"
                assert not is_read, f"{path}:{node.lineno}: Served.log() reads it"
            if isinstance(node, ast.Assert):
                is_hasty = _asks_the_log_at_once(node.test)
                assert not is_hasty, f"{path}:{node.lineno}: Served.logged waits for a line"


def _asks_the_log_at_once(test: ast.expr) -> bool:
    """Whether an assertion holds only once a line is there."""
    if isinstance(test, ast.Call):
        return any(map(_is_log, test.args))
    if isinstance(test, ast.Compare):
        wants = isinstance(test.ops[0], (ast.In, ast.Eq, ast.Gt, ast.GtE))
        return wants and any(map(_is_log, test.comparators))
    return False


def _is_log(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("log", "log_of")
    )


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ('assert "a" in served.log()', True),
        ('assert re.search("a", served.log())', True),
        ('assert "a" not in served.log()', False),
        ('assert served.logged("a")', False),
    ],
)
def test_what_asks_the_log_at_once_is_seen(line: str, asks: bool) -> None:
    (node,) = ast.parse(line).body
    assert isinstance(node, ast.Assert)
    assert _asks_the_log_at_once(node.test) == asks
