"""Changes to vLLM after which a name is of another kind, or answers in another way."""

from __future__ import annotations

import ast
from typing import Final

from lmi_backend.engines.vllm.inside.source import Function
from tests.support.mutated_vllm import Tree
from tests.support.mutations import (
    HELPER,
    NEW,
    SCOPES,
    Mutation,
    Target,
    class_of,
    decorate,
    definitions,
    parsed,
    removed,
)

_FROZEN: Final = (
    "AsyncLLM", "EngineCoreOutput", "OpenAIServingModels", "OutputProcessor", "ParallelConfig",
    "RequestOutputCollector", "RequestState", "SamplingParams",
)  # fmt: skip
"""Classes whose objects are changed here."""
_RENUMBERED: Final = ("RequestOutputKind", "UsageContext")
_FACTORIES: Final = (
    "AdapterLogitsProcessor", "EngineCoreOutput", "FlexibleArgumentParser", "HTTPConnection",
    "LoRARequest", "LogprobsLists", "SamplingParams", "StatLoggerBase", "StructuredOutputsParams",
    "UniProcExecutor", "shm_broadcast.SpinCondition",
)  # fmt: skip
"""Classes that are made or inherited from here, and nobody asks in vLLM's annotations."""
_STOOD_IN_FOR: Final = (
    "AnthropicServingMessages.to_chat_completion_request", "AsyncMPClient.add_request_async",
    "GPUModelRunner._bookkeeping_sync", "OpenAIServingChat.chat_completion_full_generator",
    "OpenAIServingModels.model_name", "OutputProcessor.process_outputs",
    "PunicaWrapperCPU.add_lora_logits", "RequestOutputCollector.put",
    "RequestState.make_request_output",
)  # fmt: skip
"""Methods that others are put in the place of here."""
_SOLE: Final = ("contextmanager", "property")


def _decorated(kind: str, target: Target, helper: str) -> Mutation:
    return Mutation(kind, target.key, lambda tree: decorate(target, tree, helper))


class _Taken(ast.NodeTransformer):
    """Has what calls of a function return go through a helper."""

    def __init__(self, word: str) -> None:
        self._word = word

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return _meant(node) if _is_call(node, self._word) else node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        is_its = _is_call(node.value, self._word)
        self.generic_visit(node)
        return _meant(node) if is_its else node


def _is_call(node: ast.AST, word: str) -> bool:
    named = node.func if isinstance(node, ast.Call) else None
    return word in (getattr(named, "attr", ""), getattr(named, "id", ""))


def _meant(node: ast.expr) -> ast.Call:
    return ast.Call(ast.parse(f"{HELPER}.meant", mode="eval").body, [node], [])


def _returning(kind: str, target: Target, helper: str) -> Mutation:
    """Have a function return something else to others, and vLLM's own callers know it.

    Those of ours that stand in for it hand on what they get.
    """

    def take(module: ast.Module) -> None:
        _Taken(target.word).visit(module)

    def apply(tree: Tree) -> None:
        decorate(target, tree, helper)
        # Nobody stands in for what makes an object.
        is_maker = target.word.startswith("__")
        for path in SCOPES.get(target.key) or tree.with_word(target.word) if not is_maker else ():
            parsed(path, tree, take)

    return Mutation(kind, target.key, apply)


def of_function(target: Target, function: Function) -> list[Mutation]:
    """Return the changes of a function's kind."""
    decorators = [ast.unparse(each) for each in function.decorator_list]
    if "property" in decorators:
        return [_seen(target, "a method")]
    found = [_returning("a tuple", target, "a_tuple"), *_other_defaults(target, function)]
    is_async = isinstance(function, ast.AsyncFunctionDef)
    if is_async and not any(isinstance(each, ast.Yield) for each in ast.walk(function)):
        found.append(_decorated("no coroutine", target, "no_coroutine"))
    if not is_async:
        found.append(_returning("a coroutine", target, "a_coroutine"))
    placed = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
    if target.key in _STOOD_IN_FOR:
        found.append(_called_otherwise(target))
    if placed:
        found.append(_decorated("positional only", target, "positional"))
    elif target.member and not decorators:
        found.append(_seen(target, "a property"))
    return found


def of_attribute(target: Target) -> list[Mutation]:
    """Return the changes of a member that is no function."""
    return [_seen(target, "a method"), _seen(target, "unreadable")]


def of_class(target: Target) -> list[Mutation]:
    """Return the changes of a class."""
    found = []
    if target.key in _FACTORIES:
        found.append(_factory(target))
    return found


def of_owner(target: Target) -> list[Mutation]:
    """Return the changes of a class whose members are held: as a whole, or of its members' values.

    Args:
        target: the class.
    """
    found = [_decorated("frozen", target, "frozen")] if target.key in _FROZEN else []
    return [*found, _renumbered(target)] if target.key in _RENUMBERED else found


def _seen(target: Target, how: str) -> Mutation:
    owner = Target(target.key, target.path, target.first, "")
    return _decorated(how, owner, f'seen("{target.member}", "{how}")')


def _other_defaults(target: Target, function: Function) -> list[Mutation]:
    """Return a change of the defaults: no becomes yes, and a number the next one."""
    given = function.args
    with_default = [*zip(given.args[::-1], given.defaults[::-1], strict=False)]
    with_default += [
        (each, value)
        for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if value
    ]
    for argument, default in with_default:
        value = getattr(default, "value", ...)
        hint = ast.unparse(argument.annotation) if argument.annotation else ""
        if isinstance(value, bool):
            new = repr(not value)
        elif isinstance(value, int):
            new = repr(value + 1)
        elif value is None and any(each in hint.split(" | ") for each in ("bool", "int", "float")):
            new = "1"
        else:
            continue
        return [_decorated("another default", target, f'other_default("{argument.arg}", {new})')]
    return []


def _factory(target: Target) -> Mutation:
    """Have a function make the objects of a class."""

    def apply(tree: Tree) -> None:
        removed(target).apply(tree)
        word = target.word
        tree[target.path] += (
            f"\n\ndef {word}(*args, **kwargs):\n    return {word}_{NEW}(*args, **kwargs)\n"
        )

    return Mutation("a function", target.key, apply)


def _called_otherwise(target: Target) -> Mutation:
    """Have vLLM call a method by another name, which its objects have besides the one it had."""
    new = f"{target.word}_{NEW}"

    def name(module: ast.Module) -> None:
        for owner in (each for each in ast.walk(module) if isinstance(each, ast.ClassDef)):
            if any(each in owner.body for each in definitions(module, target)):
                owner.body += ast.parse(f"{new} = {target.word}").body

    def apply(tree: Tree) -> None:
        paths = SCOPES.get(target.key) or tree.with_word(target.word)
        assert tree.replace(rf"(?<=\.){target.word}(?=\()", new, paths)
        parsed(target.path, tree, name)

    return Mutation("called otherwise", target.key, apply)


def _renumbered(target: Target) -> Mutation:
    """Give an enumeration's members other values."""

    def change(module: ast.Module) -> None:
        for each in class_of(module, target.first).body:
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
                value = each.value.value
                each.value.value = f"new {value}" if isinstance(value, str) else value + 10  # type: ignore[operator]

    return Mutation("other values", target.key, lambda tree: parsed(target.path, tree, change))
