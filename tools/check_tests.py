"""Check that no test depends on a clock, the shell or the folders of others, and has its place.

python tools/check_tests.py [FOLDER]
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar

import tomllib

ROOT = Path(__file__).resolve().parents[1]
LONGEST_SLEEP = 0.05
SLEEPS = frozenset({"time.sleep", "asyncio.sleep", "sleep"})
CLOCKS = frozenset({"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "process_time"})
READS = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
LOGS = frozenset({"log", "log_of"})
WRITES = frozenset({"chmod", "mkdir", "open", "symlink_to", "touch", "write_bytes", "write_text"})
OWN = frozenset({"self", "cls", "super()"})
_DEFINED = re.compile(r"(?:def |class |self\.|^)(_[A-Za-z]\w*)\b(?=[:(]|.* = )", re.MULTILINE)
REWRITES = "UPDATE_GOLDEN"
"""The only variable that unit tests read: it renews the files that they compare with."""

EXCUSED: dict[str, dict[str, str]] = tomllib.loads(
    (ROOT / "tools" / "check_tests.toml").read_text("utf-8")
)
"""By rule: a file that breaks it, and why."""
PRIVATE_LEFT: dict[str, Any] = EXCUSED.pop("private_left")
"""A file to its uses of private names, which never become more."""


@dataclass(frozen=True)
class Test:
    """A file below tests/."""

    path: str
    """Below tests/."""
    tree: ast.Module

    @property
    def folder(self) -> str:
        return self.path.partition("/")[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


def sleeps(test: Test) -> Iterator[tuple[int, str]]:
    """No test waits for a time."""
    if test.path == "support/run/waiting.py":
        return
    calls = (pairwise((call.func, *call.args)) for call in _all(test.nodes, ast.Call))
    for word, seconds in chain.from_iterable(calls):
        if _last(word) != "sleep" or ast.unparse(word) not in SLEEPS:
            continue
        length = _number(seconds, test.tree)
        # What helps tests may take a pause of its caller.
        if length is None and test.folder == "support":
            continue
        if length is None or length > LONGEST_SLEEP:
            what = f"sleeps for {ast.unparse(seconds)} s"
            yield word.lineno, f"{what}: wait for a state (support/run/waiting.py)"


def verdicts(test: Test) -> Iterator[tuple[int, str]]:
    """No verdict is a clock's. A deadline is one."""
    if test.path == "support/run/waiting.py":
        return
    if not any(map(_is_clock, test.nodes)):
        return
    spans = {scope: _spans(scope) for scope in _functions(test.tree.body)}
    measures = {
        scope.name
        for scope, names in spans.items()
        for each in _all(ast.walk(scope), ast.Return)
        if _has_span(each, names)
    }
    for scope, names in spans.items():
        for node in _all(ast.walk(scope), ast.Compare):
            if _has_span(node, names | measures):
                what = f"judges by a clock: {ast.unparse(node)}"
                yield node.lineno, f"{what}; count steps, or wait (support/run/waiting.py)"


def places(test: Test) -> Iterator[tuple[int, str]]:
    """No test writes outside its own folder."""
    for node in _all(test.nodes, ast.Attribute):
        if node.attr in ("parent", "parents") and ast.unparse(node.value) == "tmp_path":
            yield (
                node.lineno,
                f"leaves its folder by {ast.unparse(node)}: make a folder of your own",
            )
    for call in _all(test.nodes, ast.Call):
        if _last(call.func) not in WRITES:
            continue
        for path in _all(ast.walk(call), ast.Constant):
            if isinstance(path.value, str) and f"{path.value}/".startswith("/tmp/"):  # noqa: S108
                yield call.lineno, f"writes to {path.value}: write below tmp_path"


def variables(test: Test) -> Iterator[tuple[int, str]]:
    """No unit test reads what the shell happens to say."""
    if test.folder != "unit" or test.path.endswith("conftest.py"):
        return
    for call in _all(test.nodes, ast.Call):
        if _last(call.func) in ("get", "getenv") and ast.unparse(call.func) in READS:
            name = ast.unparse(call.args[0])
            if name != repr(REWRITES):
                yield call.lineno, f"reads {name} of the shell: set it with monkeypatch"


def layout(test: Test) -> Iterator[tuple[int, str]]:
    """A folder of tests/unit is one of the package; at its root, test_b.py tests b.py."""
    path = Path(test.path).relative_to("unit") if test.folder == "unit" else Path()
    if not path.name.startswith("test_"):
        return
    root = ROOT if path.parts[0] == "tools" else ROOT / "lmi_backend"
    is_at_root = path.parent == Path()
    place = root / (path.name.removeprefix("test_") if is_at_root else path.parent)
    if not place.exists() and not place.with_suffix("").is_dir():
        yield 1, f"there is no {place.relative_to(ROOT)}: move the tests to their module's"


def logs(test: Test) -> Iterator[tuple[int, str]]:
    """A line of a running server's log is waited for: it comes after the state that it reports."""
    if not Path(test.path).name.startswith("test_"):
        return
    for read in _all(test.nodes, ast.Attribute):
        if read.attr.startswith("read_") and getattr(read.value, "attr", "") == "log_file":
            yield read.lineno, "reads the log's file: Served.log() reads it"
    for check in _all(test.nodes, ast.Assert):
        asked = check.test.args if isinstance(check.test, ast.Call) else []
        if isinstance(check.test, ast.Compare) and isinstance(
            check.test.ops[0], (ast.In, ast.Eq, ast.Gt, ast.GtE)
        ):
            asked = check.test.comparators
        if any(isinstance(each, ast.Call) and _last(each.func) in LOGS for each in asked):
            yield check.lineno, "asks a log for a line at once: Served.logged waits for it"


def private(test: Test) -> Iterator[tuple[int, str]]:
    """No test uses what a module keeps for itself: a name with an underscore of the package's."""
    uses = [
        (node.lineno, alias.name)
        for node in _all(test.nodes, ast.ImportFrom)
        for alias in node.names
    ]
    uses += [
        (node.lineno, node.attr)
        for node in _all(test.nodes, ast.Attribute)
        if ast.unparse(node.value) not in OWN
    ]
    for line, name in sorted(uses):
        if name in _private_names():
            yield line, f"uses {name}: test what others see, or make it public"


@cache
def _private_names() -> frozenset[str]:
    """Return the names with an underscore that modules of the package and tools define."""
    files = chain.from_iterable((ROOT / part).rglob("*.py") for part in ("lmi_backend", "tools"))
    texts = (file.read_text("utf-8") for file in files)
    return frozenset(chain.from_iterable(map(_DEFINED.findall, texts)))


def more_private(test: Test) -> Iterator[str]:
    """Yield the uses of private names in a file that has more than are left."""
    uses, left = [*private(test)], PRIVATE_LEFT.get(test.path, 0)
    if len(uses) > left:
        yield from (f"tests/{test.path}:{line}: {what}" for line, what in uses)
    elif len(uses) < left:
        yield f"tools/check_tests.toml: {test.path} has {len(uses)} uses of private names"


RULES: dict[str, Callable[[Test], Iterator[tuple[int, str]]]] = {
    rule.__name__: rule for rule in (sleeps, verdicts, places, variables, layout, logs)
}


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "tests"
    files = sorted(folder.rglob("*.py"))
    tests = [
        Test(file.relative_to(folder).as_posix(), ast.parse(file.read_text("utf-8")))
        for file in files
    ]
    violations = [line for test in tests for line in check(test)]
    if not arguments:
        violations += [*unused(tests), *chain.from_iterable(map(more_private, tests))]
    sys.stdout.write("".join(f"{line}\n" for line in violations))
    if not violations:
        sys.stdout.write(f"tests: {len(tests)} files, no clock, no sleep, no folder of others\n")
    return 1 if violations else 0


def check(test: Test) -> Iterator[str]:
    for name, rule in RULES.items():
        if test.path not in EXCUSED.get(name, {}):
            yield from (f"tests/{test.path}:{line}: {what}" for line, what in rule(test))


def unused(tests: list[Test]) -> Iterator[str]:
    """Yield reasons that no file needs any more."""
    by_path = {test.path: test for test in tests}
    for name, files in EXCUSED.items():
        for path in files:
            if path not in by_path or not any(RULES[name](by_path[path])):
                yield f"tests/{path}:1: does not break {name}: remove it from check_tests.toml"


_Node = TypeVar("_Node", bound=ast.AST)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _all(nodes: Iterable[ast.AST], kind: type[_Node]) -> Iterator[_Node]:
    return (node for node in nodes if isinstance(node, kind))


def _last(node: ast.expr) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _functions(body: list[ast.stmt]) -> Iterator[_Function]:
    """Yield functions and methods, without those within them."""
    for node in body:
        if isinstance(node, _Function):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body)


def _number(node: ast.expr, tree: ast.Module) -> float | None:
    """Return the number that an expression of numbers and the file's constants is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (_number(part, tree) for part in (node.left, node.right))
        return None if left is None or right is None else _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Name):
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == node.id:
                return _number(statement.value, tree)
    return None


_OPERATORS: dict[type[ast.operator], Callable[..., float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv
}  # fmt: skip


def _is_clock(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    owner = node.func.value
    return node.func.attr in CLOCKS and ast.unparse(owner).endswith(("time", "loop", "loop()"))


def _spans(scope: _Function) -> set[str]:
    """Return the names of a function that hold a time plus or minus something."""
    starts = _holders(scope, _is_clock)
    return _holders(scope, lambda value: _has_span(value, set(), starts))


def _holders(scope: _Function, fits: Callable[[ast.expr], bool]) -> set[str]:
    """Return the names that a value which fits is assigned or appended to."""
    names = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.NamedExpr) and fits(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {ast.unparse(target).partition("[")[0] for target in targets}
        elif (
            isinstance(node, ast.Call)
            and _last(node.func) == "append"
            and any(map(fits, node.args))
        ):
            names.add(ast.unparse(node.func).removesuffix(".append"))
    return names


def _has_span(node: ast.AST, names: Set[str], starts: Set[str] = frozenset()) -> bool:
    """Tell whether an expression has a time plus or minus something, or a name that holds it."""
    for each in ast.walk(node):
        if names and isinstance(each, ast.Name | ast.Attribute) and ast.unparse(each) in names:
            return True
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add | ast.Sub):
            parts = (each.left, each.right)
            if any(_is_clock(part) or (starts and ast.unparse(part) in starts) for part in parts):
                return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
