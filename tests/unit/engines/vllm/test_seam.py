"""Where this package meets vLLM: by the names of one table, and by no import of its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lmi_backend
from lmi_backend.engines.vllm.names import NAMES

PACKAGE = Path(lmi_backend.__file__).parent
VLLM = PACKAGE / "engines" / "vllm"


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports, by a statement or by a call that names one."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]):
                if ast.unparse(function).endswith(("import_module", "__import__")):
                    yield module


def taken(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the table that a module takes."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="names"), attr=name):
                yield name


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    sources = {path: path.read_bytes() for path in PACKAGE.rglob("*.py")}
    return {path: ast.parse(data) for path, data in sources.items() if b"vllm" in data}


def test_no_module_imports_vllm_past_the_table(trees: dict[Path, ast.Module]) -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in trees.items()
        if any(name.partition(".")[0] == "vllm" for name in imported(tree))
    }
    assert found == set()


def test_each_name_of_the_table_is_taken_and_each_that_is_taken_is_there(
    trees: dict[Path, ast.Module],
) -> None:
    found = {name for path, tree in trees.items() if VLLM in path.parents for name in taken(tree)}
    by_text = {"EngineCoreRequest"}
    own = {"NAMES", "MissingNameError", "NeverRaised", "shown_by_vllm", "names", "__file__"}
    assert found - NAMES.keys() - own == set()
    assert NAMES.keys() - found == by_text
