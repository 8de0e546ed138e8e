"""Who depends on the inside of vLLM: the modules in inside/, and no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lmi_backend
from lmi_backend.engines.vllm import inside

PACKAGE = Path(lmi_backend.__file__).parent
INSIDE = Path(inside.__file__).parent
OUTSIDE = sorted(path for path in PACKAGE.rglob("*.py") if INSIDE not in path.parents)
ENGINE_CODE = [path for path in OUTSIDE if path.parent == INSIDE.parent]

PUBLIC = {
    "add_lora", "check_health", "get_supported_tasks", "get_tokenizer", "model_config",
    "model_config.max_model_len", "pin_lora", "remove_lora", "list_loras", "shutdown",
    "vllm_config",
}  # fmt: skip
"""What engine code outside may read of an AsyncLLM, which vLLM's own callers read too."""
NAMES = {
    "EngineDeadError", "EngineGenerateError", "LoRARequest", "RequestOutputKind", "SamplingParams",
    "StructuredOutputsParams", "VLLMClientError", "vllm_version",
}  # fmt: skip
"""What it may take of vLLM's names."""
OURS = {"reader.sends_ids"}
"""Objects that are set from outside, and are this package's."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports, by a statement or by a call that names one."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]):
                if ast.unparse(function).endswith("import_module") or (
                    ast.unparse(function) == "__import__"
                ):
                    yield module


def changed(tree: ast.AST) -> Iterator[str]:
    """Yield what a module sets on objects, but for attributes of the object that it is itself."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                pass
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield ast.unparse(node)
            case ast.Call(func=ast.Name(id="setattr" | "delattr" | "vars")):
                yield ast.unparse(node)
            case ast.Attribute(attr="__dict__" | "__setattr__" | "__delattr__" | "__class__"):
                yield ast.unparse(node)
            case ast.ClassDef(bases=bases):
                yield from (base for base in map(ast.unparse, bases) if base.startswith("names."))


def read(tree: ast.AST, *roots: str) -> Iterator[str]:
    """Yield what a module reads of what it calls one of some names."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute():
                text = ast.unparse(node)
                yield from (text.removeprefix(root) for root in roots if text.startswith(root))
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[ast.AST() as of, *_]):
                yield from (ast.unparse(node) for root in roots if ast.unparse(of) == root[:-1])


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_bytes()) for path in OUTSIDE}


def test_no_other_module_imports_vllm(trees: dict[Path, ast.Module]) -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path, tree in trees.items()
        if any(name.partition(".")[0] == "vllm" for name in imported(tree))
    }
    assert found == set()


def test_no_other_module_changes_vllms_objects(trees: dict[Path, ast.Module]) -> None:
    found = {text for path in ENGINE_CODE for text in changed(trees[path])}
    assert found - OURS == set()


def test_no_other_module_reads_more_of_the_engine_than_its_public_part(
    trees: dict[Path, ast.Module],
) -> None:
    found = {text for path in ENGINE_CODE for text in read(trees[path], "self._engine.", "engine.")}
    assert found - PUBLIC == set()
    assert found > {"shutdown", "add_lora"}


def test_no_other_module_takes_a_private_name_of_vllms(trees: dict[Path, ast.Module]) -> None:
    found = {text.split(".")[0] for path in ENGINE_CODE for text in read(trees[path], "names.")}
    assert found - NAMES == set()
    assert "SamplingParams" in found


@pytest.mark.parametrize(
    ("text", "finder"),
    [
        ("import vllm.envs", imported),
        ("def f():\n  from vllm import x", imported),
        ("import_module('vllm')", imported),
        ("importlib.import_module('vllm.envs')", imported),
        ("__import__('vllm')", imported),
        ("self._engine.x = 1", changed),
        ("engine.x += 1", changed),
        ("del engine.x", changed),
        ("for engine.x in y: pass", changed),
        ("setattr(engine, 'x', 1)", changed),
        ("vars(engine).update(x=1)", changed),
        ("engine.__dict__['x'] = 1", changed),
        ("object.__setattr__(engine, 'x', 1)", changed),
        ("class A(names.B): pass", changed),
    ],
)
def test_each_way_is_seen(text: str, finder: object) -> None:
    assert callable(finder)
    assert [*finder(ast.parse(text))]


def test_each_read_is_seen() -> None:
    text = "self._engine.a.b(); engine.c; getattr(self._engine, 'd'); other.engine.e; self.x"
    assert {*read(ast.parse(text), "self._engine.", "engine.")} == {
        "a", "a.b", "c", "getattr(self._engine, 'd')",
    }  # fmt: skip
