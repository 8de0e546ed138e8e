"""Judge text by the type an engine declares for an argument, as its command line would."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

# vLLM reads only these with a letter behind the number.
_SCALED: Final = frozenset(
    {
        "kv_cache_memory_bytes",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_queued_tokens",
        "max_num_scheduled_tokens",
        "safetensors_prefetch_block_size",
    }
)
_SCALED_NUMBER: Final = re.compile(r"\d+[kKmMgGtT]?|\d+\.\d+[kmgt]")
# For these vLLM takes DEEP-GEMM for deep_gemm.
_FOLDED: Final = frozenset({"linear_backend", "moe_backend", "sparse_indexer_topk_backend"})
_UNION: Final = frozenset({"Union", "Optional"})
_PLAIN: Final = frozenset({"bool", "str", "int", "float", "dict", "Literal", "None"})
_COLLECTIONS: Final = frozenset({"list", "set", "tuple", "List", "Set", "Tuple", "Sequence"})


def problem_of(name: str, kind: str, text: str) -> str:
    """Return why vLLM's command line would not take a text for an argument; empty if it would.

    Args:
        kind: the declared type; one that cannot be read judges nothing.
    """
    try:
        tree = ast.parse(kind, mode="eval").body
    except SyntaxError:
        return ""
    members = list(members_of(tree))
    names = member_names(tree)
    # A type of several, such as `dict | str`, is taken as text first.
    if "str" in names and not names & _COLLECTIONS:
        return ""
    if "bool" in names:
        return _problem(text, _is_truth, "true or false")
    if "None" in names and text in ("", "None"):
        return ""
    for member in members:
        if _name(member) in _COLLECTIONS:
            return _of_items(name, member, text)
    return _of_one(name, members, text)


def value_of(kind: str, text: str) -> Any:
    """Return the value that a text is, by the type declared for it.

    Args:
        text: one that `problem_of` finds nothing wrong with.
    """
    members = list(members_of(ast.parse(kind, mode="eval").body))
    names = {_name(member) for member in members}
    if "bool" in names:
        return text.lower() == "true"
    if "None" in names and text in ("", "None"):
        return None
    if names & _COLLECTIONS:
        items = json_of(text) if text.lstrip().startswith("[") else text.split(",")
        return [item.strip() if isinstance(item, str) else item for item in items]
    words = [word for member in members for word in literal_words(member)]
    if words or "str" in names:
        return next((word for word in words if str(word) == text), text)
    if names & {"int", "float"}:
        return int(text) if "int" in names else float(text)
    return json_of(text)


def is_text_for(kind: str) -> bool:
    """Tell whether `value_of` makes a value of a type: it makes none of classes."""
    members = list(members_of(ast.parse(kind, mode="eval").body))
    inner = [
        each
        for member in members
        if _name(member) in _COLLECTIONS and isinstance(member, ast.Subscript)
        for each in members_of(member.slice)
    ]
    return {_name(member) for member in members} <= _PLAIN | _COLLECTIONS and {
        _name(member) for member in inner
    } <= {"str"}


def unknown_key(keys: Iterable[str], given: Iterable[str], taker: str = "the engine") -> str:
    """Return why an object cannot have one of the keys given; empty if it can have all."""
    known = list(keys)
    # vLLM reads both.
    unknown = next((key for key in given if key.replace("-", "_") not in known), None)
    if unknown is None:
        return ""
    near = difflib.get_close_matches(unknown, known, n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"has a key that {taker} does not know, {json.dumps(unknown)}{hint}"


def unknown_word(kind: str, value: object, taker: str = "the engine") -> str:
    """Return why a value is none of those that a type lists; empty if it lists none."""
    try:
        tree = ast.parse(kind, mode="eval").body
    except SyntaxError:
        return ""
    members = [member for member in members_of(tree) if _name(member) != "None"]
    words = [word for member in members for word in literal_words(member)]
    if not words or len(members) > 1 or value in words:
        return ""
    return f"is not what {taker} takes; accepted: {', '.join(map(str, words))}"


def _of_one(name: str, members: list[ast.expr], text: str) -> str:
    names = {_name(member) for member in members}
    words = [str(word) for member in members for word in literal_words(member)]
    if words:
        if name in _FOLDED:
            text = text.lower().replace("-", "_")
        return _problem(text, words.__contains__, ", ".join(words))
    if "int" in names:
        if name in _SCALED:
            return _problem(text, _is_scaled, "a whole number, also as 32k or 32K")
        return _problem(text, _converts(int), "a whole number")
    if "float" in names:
        return _problem(text, _converts(float), "a number")
    # Unions with a class of unknown reading are text to vLLM.
    is_object = all(each in ("dict", "None") or _is_config(each) for each in names)
    return _problem(text, _is_object, "a JSON object") if is_object else ""


def _of_items(name: str, kind: ast.expr, text: str) -> str:
    """Judge a list as we hand it on: JSON, or values with commas between."""
    if not isinstance(kind, ast.Subscript):
        return ""
    items = json_of(text) if text.lstrip().startswith("[") else text.split(",")
    if not isinstance(items, list):
        return _problem(text, _never, "values with commas between, or a JSON list")
    members = list(members_of(kind.slice))
    if "str" in {_name(member) for member in members}:
        return ""
    problems = (_of_one(name, members, str(item).strip()) for item in items)
    return next((problem for problem in problems if problem), "")


def _problem(text: str, takes: Callable[[str], bool], accepted: str) -> str:
    return "" if takes(text) else f"is not what the engine takes; accepted: {accepted}"


def members_of(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the members of a union, None for an optional one too."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from members_of(node.left)
        yield from members_of(node.right)
    elif isinstance(node, ast.Subscript) and _name(node.value) in _UNION:
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for each in inner:
            yield from members_of(each)
        if _name(node.value) == "Optional":
            yield ast.Constant(None)
    else:
        yield node


def member_names(kind: ast.expr) -> set[str]:
    """Return the names of the types in a union: of `list[str] | None` list and None."""
    return {_name(member) for member in members_of(kind)}


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    name = node.id if isinstance(node, ast.Name) else str(getattr(node, "value", ""))
    return "None" if name == "NoneType" else name


def literal_words(node: ast.expr) -> Iterator[Any]:
    """Yield the values of `Literal[…]`."""
    if isinstance(node, ast.Subscript) and _name(node.value) == "Literal":
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for each in inner:
            if isinstance(each, ast.Constant):
                yield each.value
            else:
                yield from literal_words(each)


def _is_config(name: str) -> bool:
    return name.endswith(("Config", "ConfigArgs"))


def _is_truth(text: str) -> bool:
    return text.lower() in ("true", "false")


def _is_scaled(text: str) -> bool:
    return _SCALED_NUMBER.fullmatch(text) is not None


def _is_object(text: str) -> bool:
    return isinstance(json_of(text), dict)


def json_of(text: str) -> Any:
    """Return the value of a JSON text; None of one that is none, or too deep to be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _never(_: str) -> bool:
    return False


def _converts(kind: Callable[[str], object]) -> Callable[[str], bool]:
    def takes(text: str) -> bool:
        try:
            kind(text)
        except ValueError:
            return False
        return True

    return takes
