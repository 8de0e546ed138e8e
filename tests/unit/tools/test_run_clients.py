"""What `make clients` runs, records and shows."""

import ast
from pathlib import Path

import pytest
import run_clients
from client_programs import PROGRAMS
from install import InstallError

from tests.clients.conftest import SCRIPTS
from tests.clients.run_programs import EXPECTED

NAME, OTHER = list(PROGRAMS)[:2]


def test_every_program_has_a_script_whose_cases_are_all_judged() -> None:
    assert set(EXPECTED) == set(PROGRAMS)
    for name, cases in EXPECTED.items():
        tree = ast.parse((SCRIPTS / f"{PROGRAMS[name].script}.py").read_text(encoding="utf-8"))
        # What is decorated is a tool.
        cases_of = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and not node.decorator_list
        } | {
            key.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASES"
            for key in node.value.keys  # type: ignore[attr-defined]
        }
        assert {each for each in cases_of if each[0] != "_"} == set(cases), name


def test_a_record_keeps_the_others_and_tells_what_is_left(tmp_path: Path) -> None:
    results = tmp_path / "record.json"
    expected = {"chat": "Rome", "tool": ["travel"]}
    outcomes = {"chat": "Rome", "tool": {"raised": "ValueError", "text": "no"}}
    run_clients.write(PROGRAMS[OTHER], run_clients.judged(outcomes, expected), results)
    reason = "uv pip install x\n  no version\n  of x\n"
    run_clients.write(PROGRAMS[NAME], run_clients.not_installed(reason), results)
    record = run_clients.recorded(results)
    assert list(record) == [NAME, OTHER]
    assert record[OTHER]["failed"] == {"tool": outcomes["tool"]}
    # What could not be installed is tried again, and so is a newer version.
    assert OTHER not in run_clients.waiting(record)
    assert NAME in run_clients.waiting(record)
    assert OTHER in run_clients.waiting({OTHER: record[OTHER] | {"version": "0"}})
    lines = list(run_clients.programs(results))
    assert lines[2].endswith("| not installed: no version of x |")
    assert lines[3].endswith("| 1 of 2; not `tool` |")


def test_an_environment_is_deleted_even_if_it_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path, *words: str) -> None:
        if words[0] == "venv":
            Path(words[-1]).mkdir()
            return
        raise InstallError(" ".join(words))

    monkeypatch.setattr(run_clients, "FOLDER", tmp_path)
    monkeypatch.setattr(run_clients, "call_uv", fail)
    with (
        pytest.raises(InstallError, match=PROGRAMS[NAME].packages[0][:9]),
        run_clients.environment(PROGRAMS[NAME]),
    ):
        pass
    assert not list(tmp_path.iterdir())
