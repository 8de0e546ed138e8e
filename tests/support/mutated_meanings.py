"""Changes to vLLM after which its names are there and mean something else; and all mutations."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from lmi_backend.engines.vllm.inside.source import Source, members
from tests.support import mutated_kinds
from tests.support.mutated_vllm import Tree
from tests.support.mutations import (
    HELPER,
    NEW,
    SCOPES,
    UNSTARTED,
    Mutation,
    Target,
    calls,
    class_of,
    functions,
    moved,
    parsed,
    raises,
    removed,
    reordered,
    required,
    slots,
    targets,
)

_PROCESSOR: Final = "v1/engine/output_processor.py"
MEMBERS: Final = {"null": "None", "a constant": "7", "a number": f"{HELPER}.number()"}
"""What an unknown member may hold."""


def output_member(kind: str) -> Mutation:
    """Have each output of a core tell one thing more."""
    value = MEMBERS[kind]

    def apply(tree: Tree) -> None:
        def define(module: ast.Module) -> None:
            found = class_of(module, "EngineCoreOutput").body
            last = max(n for n, each in enumerate(found) if isinstance(each, ast.AnnAssign))
            found.insert(last + 1, ast.parse(f"{NEW}: int | None = None").body[0])

        def give(module: ast.Module) -> None:
            for call in calls(module, "EngineCoreOutput"):
                new = ast.parse(value, mode="eval").body
                call.keywords.append(ast.keyword(NEW, new))

        parsed("v1/engine/__init__.py", tree, define)
        parsed("v1/core/sched/scheduler.py", tree, give)

    return Mutation(f"a member that is {kind}", "EngineCoreOutput", apply)


def event_member(target: Target, kind: str) -> Mutation:
    """Have each event of the server's streams tell one thing more."""

    def apply(tree: Tree) -> None:
        def define(module: ast.Module) -> None:
            more = ast.parse(
                f"def model_post_init(self, context):\n    self.{NEW} = {MEMBERS[kind]}"
            ).body[0]
            field = ast.parse(f"{NEW}: int | None = None").body[0]
            class_of(module, target.first).body += [field, more]

        parsed(target.path, tree, define)

    return Mutation(f"a member that is {kind}", target.key, apply)


def other_booleans() -> Mutation:
    """Have the parser spell "no" otherwise."""

    def apply(tree: Tree) -> None:
        paths = tree.with_word("BooleanOptionalAction")
        assert tree.replace(
            r"\b(?:argparse\.)?BooleanOptionalAction(?=[,\s)])",
            f"{HELPER}.Boolean",
            [path for path in paths if path == "engine/arg_utils.py"],
        )

    return Mutation("other booleans", "AsyncEngineArgs.add_cli_args", apply)


_ROUTERS: Final = (
    "entrypoints/openai/chat_completion/api_router.py",
    "entrypoints/openai/completion/api_router.py",
)


def wrapped_endpoints() -> Mutation:
    """Have a decorator change the endpoints' answers."""

    def change(module: ast.Module) -> None:
        for name in ("create_chat_completion", "create_completion"):
            for function in functions(module, name):
                new = ast.parse(f"{HELPER}.headed", mode="eval").body
                function.decorator_list.insert(1, new)

    return Mutation(
        "a decorator",
        "APIRoute.endpoint",
        lambda tree: [parsed(path, tree, change) for path in _ROUTERS] and None,
    )


def guarded_routes() -> Mutation:
    """Have a route depend on what refuses some requests."""

    def apply(tree: Tree) -> None:
        assert tree.replace(r"dependencies=\[", f"dependencies=[{HELPER}.refusing(), ", _ROUTERS)

    return Mutation("a dependency", "APIRoute.dependencies", apply)


def routes_of_another_class() -> Mutation:
    """Have routes of a class of their own, which refuses some requests."""
    own = f"APIRouter(route_class={HELPER}.refusing_routes())"

    def apply(tree: Tree) -> None:
        assert tree.replace(r"\bAPIRouter\(\)", own, _ROUTERS)

    return Mutation("another class", "APIRoute.endpoint", apply)


def application_of_another_class() -> Mutation:
    """Have an application of a class of its own, which refuses some requests."""

    def apply(tree: Tree) -> None:
        path = tree.path_of("vllm.entrypoints.launchers.app")
        assert tree.replace(r"\bFastAPI\(", f"{HELPER}.refusing_application()(", [path])

    return Mutation("another class", "build_app", apply)


def package_of_another_name() -> Mutation:
    """Give the package of the engine another name."""
    old, new = "v1", f"v1_{NEW}"

    def apply(tree: Tree) -> None:
        assert tree.replace(rf"\bvllm\.{old}\b", f"vllm.{new}")
        tree.moved[old] = new

    return Mutation("a package renamed", "AsyncLLM.from_vllm_config", apply)


def errors_of_other_names() -> Mutation:
    """Give the errors by which requests are refused other names."""

    def apply(tree: Tree) -> None:
        for name in ("VLLMError", "VLLMClientError", "VLLMValidationError"):
            assert tree.replace(rf"\b{name}\b", f"{name}_{NEW}")

    return Mutation("other errors", "SamplingParams", apply)


def prompt_given_once() -> Mutation:
    """Have others get the ids of a prompt with its first output alone."""

    def change(module: ast.Module) -> None:
        decorator = ast.parse(f"{HELPER}.given_once", mode="eval").body
        class_of(module, "RequestOutput").decorator_list.insert(0, decorator)

    return Mutation(
        "a prompt given once", "AsyncLLM.generate", lambda tree: parsed("outputs.py", tree, change)
    )


def server_generates_otherwise() -> Mutation:
    """Have the server generate by another method of the engine."""

    def apply(tree: Tree) -> None:
        servers = [path for path in tree if path.startswith("entrypoints/")]
        assert tree.replace(r"engine_client\.generate\(", f"engine_client.{NEW}(", servers)
        tree["v1/engine/async_llm.py"] += (
            f"\n\nAsyncLLM.{NEW} = lambda self, *args, **kwargs: self.generate(*args, **kwargs)\n"
        )

    return Mutation("called otherwise", "AsyncLLM.generate", apply)


def rekeyed() -> Mutation:
    """Have the output processor keep its requests by other keys."""

    def apply(tree: Tree) -> None:
        assert tree.replace(
            r"(self\.request_states: [^=]+)= \{\}", rf"\1= {HELPER}.Rekeyed()", [_PROCESSOR]
        )

    return Mutation("other keys", "OutputProcessor.request_states", apply)


def counted_from_zero() -> Mutation:
    """Have the interval of a stream count from 0."""

    def apply(tree: Tree) -> None:
        words = {
            r"(self\.stream_interval = stream_interval)\n": r"\1 - 1\n",
            r"self\.stream_interval > 1": "self.stream_interval > 0",
            r">= self\.stream_interval": "> self.stream_interval",
        }
        for old, new in words.items():
            first, found, rest = tree[_PROCESSOR].partition("class OutputProcessor:")
            changed, count = re.subn(old, new, first)
            assert count, old
            tree[_PROCESSOR] = changed + found + rest

    return Mutation("counted from 0", "RequestState.stream_interval", apply)


def attributes(defined: ast.ClassDef) -> set[str]:
    """Return what objects of a class have; what an enumeration has is its own."""
    is_enumeration = any(ast.unparse(base).endswith("Enum") for base in defined.bases)
    return set() if is_enumeration else members(defined)


def _of_target(target: Target, source: Source) -> list[Mutation]:
    module = "vllm." + target.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    has_arguments, found = bool(SCOPES.get(target.key, True)), []
    if has_arguments:
        found.append(removed(target))
    if not target.member:
        found.append(moved(target))
    path = f"{target.first}.{target.member}" if target.member else target.first
    if function := source.function(module, path):
        # A property takes none.
        if has_arguments and not any(
            ast.unparse(each) == "property" for each in function.decorator_list
        ):
            found.append(required(target))
        has_all = has_arguments and target.key not in UNSTARTED
        if has_all and len(function.args.args) - len(function.args.defaults) > 2:
            found.append(reordered(target))
        return [*found, raises(target), *mutated_kinds.of_function(target, function)]
    defined = source.definition(module, target.first)
    if isinstance(defined, ast.ClassDef) and not target.member:
        found += mutated_kinds.of_class(target)
    elif isinstance(defined, ast.ClassDef) and target.member in attributes(defined):
        found += mutated_kinds.of_attribute(target)
    return found


def mutations(folder: Path) -> list[Mutation]:
    """Return all mutations of one vLLM."""
    known, source = targets(folder), Source(folder)
    found = [mutation for target in known.values() for mutation in _of_target(target, source)]
    owners = {each.first: Target(each.first, each.path, each.first, "") for each in known.values()}
    for key in ("AsyncLLM", "OutputProcessor", "RequestState", "RequestOutputCollector"):
        found.append(slots(owners[key]))
    found += [each for owner in owners.values() for each in mutated_kinds.of_owner(owner)]
    found += [output_member(kind) for kind in MEMBERS]
    for key in ("ChatCompletionStreamResponse", "CompletionStreamResponse"):
        found += [event_member(known[key], kind) for kind in MEMBERS]
    return [
        *found,
        other_booleans(),
        wrapped_endpoints(),
        guarded_routes(),
        routes_of_another_class(),
        application_of_another_class(),
        package_of_another_name(),
        errors_of_other_names(),
        prompt_given_once(),
        rekeyed(),
        server_generates_otherwise(),
        counted_from_zero(),
    ]
