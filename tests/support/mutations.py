"""Changes to vLLM as a release might make them: operators on syntax trees, applied to names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lmi_backend.engines.vllm.inside.names import NAMES
from lmi_backend.engines.vllm.inside.source import Source
from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS
from tests.support.mutated_vllm import HELPERS, Tree

HELPER: Final = f'__import__("vllm.{HELPERS}", fromlist=["x"])'
NEW: Final = "mutation_new"
_ENGINE: Final = (
    "v1/engine/output_processor.py", "v1/engine/async_llm.py", "v1/engine/llm_engine.py"
)  # fmt: skip
_COMMON: Final = ("abort", "generate", "get_tokenizer", "model_config", "shutdown")
"""Members of AsyncLLM whose words are many others' too: an engine without one is never started."""
SCOPES: Final[dict[str, Sequence[str]]] = {
    "RequestOutputCollector.put": _ENGINE[:2],
    "RequestOutputCollector.get_nowait": _ENGINE[:2],
    "IncrementalDetokenizer.update": (*_ENGINE, "v1/engine/detokenizer.py"),
    "RequestState.queue": _ENGINE[:1],
    "AsyncLLM.add_request": (),
    "AsyncLLM.encode": (),
    "MsgpackEncoder.encode": (),
    **{f"AsyncLLM.{word}": (_ENGINE[1], "engine/protocol.py") for word in _COMMON},
}
"""Files that hold all uses of a member whose word is also another's; empty if it cannot be told."""
UNSTARTED: Final = tuple(f"AsyncLLM.{word}" for word in _COMMON)
"""Members that others of vLLM call too, outside of those files."""


@dataclass(frozen=True)
class Target:
    """A name that is held, in one vLLM."""

    key: str
    """`Class.member`, or a function or class, as the tables have it."""
    path: str
    """File that defines it."""
    first: str
    member: str

    @property
    def word(self) -> str:
        return self.member or self.first


@dataclass(frozen=True)
class Mutation:
    """One change."""

    kind: str
    key: str
    apply: Callable[[Tree], None]

    @property
    def name(self) -> str:
        return f"{self.key}: {self.kind}"

    @property
    def fast_paths(self) -> set[str]:
        """Names of the fast paths that touch it, or a member of it; empty if it is needed."""
        return {
            fast_path.name
            for fast_path in PATHS
            if any(f"{bare(text)}.".startswith(f"{self.key}.") for text in fast_path.names)
        }


def bare(text: str) -> str:
    """Return a name of the tables without what they say of it."""
    return text.partition("(")[0].rstrip("?")


def targets(folder: Path) -> dict[str, Target]:
    """Return all names of the tables that are this vLLM's own."""
    source, tree, found = Source(folder), Tree(folder), {}
    for entry in (*PATHS, *NEEDS):
        for key in map(bare, entry.names):
            first, _, member = key.partition(".")
            name = NAMES.get(first)
            if name is None:
                continue
            if name.name == "*":
                found[key] = Target(key, tree.path_of(name.module), member, "")
            elif module := source.home(name.name or first, name.module):
                path = _definer(tree, tree.path_of(module), name.name or first)
                found[key] = Target(key, path, name.name or first, member)
    return found


def _definer(tree: Tree, path: str, name: str) -> str:
    """Return the file that defines a name which a package has from one of its modules."""
    defines = re.compile(rf"^(?:class|def|async def) {name}\b", re.MULTILINE)
    folder = path.rpartition("/")[0] + "/"
    near = [each for each in tree if each.startswith(folder) and defines.search(tree[each])]
    return path if not near or path in near or not path.endswith("__init__.py") else near[0]


def removed(target: Target) -> Mutation:
    """Rename a name in all of vLLM: to others it is gone."""

    def apply(tree: Tree) -> None:
        paths = SCOPES.get(target.key) or tree.with_word(target.word)
        # `os.sched_yield` stays, and a module of the same name.
        before = r"(?<=\.)" if target.key in SCOPES else r"(?<!\bos\.)\b"
        new = f"{target.word}_{NEW}"
        count = tree.replace(rf"{before}{target.word}\b(?!/| import)", new, paths)
        if target.key in SCOPES:
            count += tree.replace(
                rf"(?m)(?<=def ){target.word}\b|(?<=^    ){target.word}(?=:)", new, paths
            )
        assert count, target

    return Mutation("removed", target.key, apply)


def moved(target: Target) -> Mutation:
    """Give the module of a name another one."""

    def apply(tree: Tree) -> None:
        old = target.path.removesuffix(".py").removesuffix("/__init__")
        new = f"{old}_{NEW}"
        dotted = "vllm." + old.replace("/", ".")
        package, _, name = dotted.rpartition(".")
        named = [path for path in tree if package in tree[path] and name in tree[path]]
        tree.replace(rf"\b{re.escape(dotted)}\b", "vllm." + new.replace("/", "."), named)
        tree.replace(
            rf"\bfrom {re.escape(package)} import {name}\b",
            f"from {package} import {name}_{NEW} as {name}",
            named,
        )
        _move_relative(tree, dotted)
        # What a package imports when it is asked for.
        imports = tree.path_of(package) if "." in package else "__init__.py"
        if imports in named:
            tree.replace(rf"(?<=[\"']\.){name}(?=:)", f"{name}_{NEW}", [imports])
        tree.moved[old] = new

    return Mutation("moved", target.key, apply)


def _move_relative(tree: Tree, dotted: str) -> None:
    """Follow a module that moves in what imports it from near by."""
    name = dotted.rpartition(".")[2]
    for path in tree:
        package = ("vllm/" + path).split("/")[:-1]

        def renamed(found: re.Match[str], package: list[str] = package) -> str:
            kept = len(package) - len(found[1]) + 1
            whole = ".".join([*package[:kept], found[2]])
            return f"from {found[1]}{found[2]}_{NEW} import" if whole == dotted else found[0]

        if name in tree[path]:
            tree[path] = re.sub(rf"from (\.+)((?:[\w.]+\.)?{name}) import", renamed, tree[path])


def parsed(path: str, tree: Tree, change: Callable[[ast.Module], None]) -> None:
    module = ast.parse(tree[path])
    change(module)
    tree[path] = ast.unparse(ast.fix_missing_locations(module))


def functions(module: ast.Module, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [each for each in ast.walk(module) if isinstance(each, kinds) and each.name == name]


def class_of(module: ast.Module, name: str) -> ast.ClassDef:
    return next(
        each for each in ast.walk(module) if isinstance(each, ast.ClassDef) and each.name == name
    )


def calls(module: ast.Module, name: str) -> list[ast.Call]:
    def called(call: ast.Call) -> str:
        return getattr(call.func, "attr", "") or getattr(call.func, "id", "")

    return [
        each for each in ast.walk(module) if isinstance(each, ast.Call) and called(each) == name
    ]


def _in_all(
    target: Target,
    tree: Tree,
    define: Callable[[ast.FunctionDef | ast.AsyncFunctionDef], None],
    call: Callable[[ast.Call], None],
) -> None:
    """Change the definitions of a function, and all its calls in vLLM."""

    def change(module: ast.Module) -> None:
        for each in functions(module, target.word):
            define(each)
        for one in calls(module, target.word):
            call(one)

    # What makes an object is called by the name of its class, and its word is that of each class.
    is_maker = target.word.startswith("__")
    alone = [target.path] if is_maker else []
    for path in SCOPES.get(target.key) or alone or tree.with_word(target.word):
        parsed(path, tree, change)


def required(target: Target) -> Mutation:
    """Have a function ask for one argument more."""

    def define(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        function.args.kwonlyargs.append(ast.arg(NEW))
        function.args.kw_defaults.append(None)

    def call(each: ast.Call) -> None:
        each.keywords.append(ast.keyword(NEW, ast.Constant(None)))

    return Mutation(
        "a required parameter", target.key, lambda tree: _in_all(target, tree, define, call)
    )


def reordered(target: Target) -> Mutation:
    """Have a function take its second and third arguments in the other order."""

    def define(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        given = function.args.args
        given[1:3] = given[1:3][::-1]

    def call(each: ast.Call) -> None:
        each.args[:2] = each.args[:2][::-1]

    return Mutation("reordered", target.key, lambda tree: _in_all(target, tree, define, call))


def slots(target: Target) -> Mutation:
    """Let objects of a class have only the members that it gives them."""
    return Mutation("__slots__", target.key, lambda tree: decorate(target, tree, "slots"))


def raises(target: Target) -> Mutation:
    """Have a function raise at its third call from outside vLLM."""
    return Mutation("a raise", target.key, lambda tree: decorate(target, tree, "raises_once"))


def decorate(target: Target, tree: Tree, helper: str) -> None:
    def change(module: ast.Module) -> None:
        decorator = ast.parse(f"{HELPER}.{helper}", mode="eval").body
        for found in definitions(module, target):
            found.decorator_list.insert(0, decorator)

    parsed(target.path, tree, change)


def definitions(
    module: ast.Module, target: Target
) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return what defines a target in its module: a method may be of the classes below, too."""
    if not target.member:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return [
            each for each in module.body if isinstance(each, kinds) and each.name == target.first
        ]
    owners = [target.first]
    for each in (each for each in module.body if isinstance(each, ast.ClassDef)):
        if any(ast.unparse(base) in owners for base in each.bases):
            owners.append(each.name)
    return [
        function
        for each in owners
        for function in class_of(module, each).body
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and function.name == target.member
    ]
