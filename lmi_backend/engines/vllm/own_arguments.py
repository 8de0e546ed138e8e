"""What this vLLM takes: its own parser, its config classes and its registries are queried.

    python -m lmi_backend.engines.vllm.own_arguments FILE

It imports vLLM, which takes some 20 seconds. What it writes `options.signature` reads.
"""

from __future__ import annotations

import argparse
import builtins
import dataclasses
import enum
import json
import logging
import os
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from lmi_backend.engines.vllm import compat, names, vllm_server
from lmi_backend.options.signature import (
    ANY_CASE,
    NO_FLAG,
    REQUIRED,
    SCALED,
    exact_signature,
    place_of_answer,
    recorded_signature,
    shorten,
    source_of,
)

_log = logging.getLogger(__name__)
Field = dataclasses.Field[Any]
_READ_AS: Final = ((SCALED, "1k", 1000), (ANY_CASE, "A-B", "a_b"))
"""How a flag reads a text: the text, and what it makes of that."""
_UNIONS: Final = ("Union", "UnionType")
_COLLECTIONS: Final = {"list": "list", "set": "set", "tuple": "tuple", "Sequence": "list"}


def keep_if_unknown() -> None:
    """Keep what this vLLM takes for the next plan, if the package has no record of its release."""
    source = source_of("vllm")
    if source is None or exact_signature("vllm", names.vllm_version):
        return
    try:
        if path := place_of_answer(source, sys.executable):
            write(path)
    except Exception as error:  # noqa: BLE001  nothing that is served depends on it
        _log.warning("what this vLLM takes cannot be kept for the next plan: %s", error)


def write(path: Path) -> None:
    own = path.with_suffix(f".{os.getpid()}")
    own.write_text(json.dumps(record()), encoding="utf-8")
    own.replace(path)


def record() -> dict[str, Any]:
    flags = {action.dest: action for action in compat.argument_parser()._actions}
    actions = {action.dest: action for action in vllm_server.argument_parser()._actions}
    fields = [field for field in dataclasses.fields(names.AsyncEngineArgs) if field.init]
    server, listener = _server()
    own = {field.name for field in fields}
    return {
        "engine": "vllm",
        "version": names.vllm_version,
        **_models(),
        "objects": {field.name: keys for field in fields if (keys := _keys(field))},
        "words": _words(),
        "server": {field.name: _texts(field, actions.get(field.name)) for field in server},
        "listener": sorted(listener),
        "opposites": {
            flag: name for flag, name in _opposites(actions.values()) if name not in listener
        },
        "spellings": {
            name: to for name, to in _spellings(actions.values()) if to in own and name != to
        },
        "arguments": {
            field.name: _texts(field, flags.get(field.name))
            for field in fields
            if not field.name.startswith("_")
        },
    }


def _texts(field: Field, flag: argparse.Action | None) -> list[str]:
    """Return type and default of an argument, and how its flag reads it if that is special."""
    kind = type_text(_type_of(field))
    mark = NO_FLAG if flag is None else mark_of(flag.type)
    device = names.current_platform.device_type
    if flag and flag.choices and kind in ("str", "str | None") and device not in flag.choices:
        # Elsewhere it takes another device.
        words = [repr(word) for word in flag.choices if word is not None]
        kind = " | ".join([*words, *(["None"] if kind.endswith("None") else [])])
    return [kind, _default(field), *([mark] if mark else [])]


def mark_of(read: Any) -> str:
    """Return how a flag reads its text, if that is special."""
    for mark, text, value in _READ_AS:
        try:
            if callable(read) and read(text) == value:
                return mark
        except (argparse.ArgumentTypeError, LookupError, TypeError, ValueError):
            continue
    return ""


def _server() -> tuple[list[Field], set[str]]:
    """Return the arguments of vLLM's HTTP server, and the names of its listener's."""
    kind = sys.modules[names.make_arg_parser.__module__].FrontendArgs
    fields = [field for field in dataclasses.fields(kind) if field.init]
    bases = [base for base in kind.__bases__ if dataclasses.is_dataclass(base)]
    application = {field.name for base in bases for field in dataclasses.fields(base)}
    recorded = recorded_signature("vllm")
    # Of a release that keeps them together the record says which are the listener's.
    listener = {field.name for field in fields if field.name not in application}
    if not bases and recorded:
        listener &= set(recorded.listener)
    return [field for field in fields if field.name not in listener], listener


def _models() -> dict[str, Any]:
    """Return the models that it serves, and those that it says it had, with the last version.

    Of the latter it tries some by Transformers' code, and refuses the others.
    """
    import transformers  # noqa: PLC0415

    def is_replaced(name: str) -> bool:
        cls: Any = getattr(transformers, name, None)
        return bool(cls) and bool(cls.is_backend_compatible() or cls._can_set_attn_implementation())

    past = names.PREVIOUSLY_SUPPORTED_MODELS
    return {
        # For some it names the plugin that brings their code.
        "models": sorted({*names.ModelRegistry.get_supported_archs(), *names.PLUGIN_MODELS}),
        "ended_models": {name: last for name, last in past.items() if not is_replaced(name)},
        "replaced_models": {name: last for name, last in past.items() if is_replaced(name)},
    }


def _words() -> dict[str, list[str]]:
    """Return the values of arguments that take any text, without those of plugins."""
    return {
        "quantization": list(names.QUANTIZATION_METHODS),
        # Since 0.33 plugins add to them.
        **({"kv_cache_dtype": list(words)} if (words := names.KV_CACHE_DTYPES) else {}),
        "load_format": list(names.LOADERS),
        "tool_call_parser": list(names.ToolParserManager.list_registered()),
        "reasoning_parser": list(names.ReasoningParserManager.list_registered()),
    }


def _opposites(actions: typing.Iterable[argparse.Action]) -> Iterator[tuple[str, str]]:
    """Yield the flags that turn an argument off and have another name than `--no-…`, with it."""
    switches = (each for each in actions if isinstance(each, argparse.BooleanOptionalAction))
    for action in switches:
        for name in _long(action.option_strings):
            if name != action.dest and not name.startswith("no_"):
                yield name, action.dest


def _spellings(actions: typing.Iterable[argparse.Action]) -> Iterator[tuple[str, str]]:
    """Yield the names of flags that have a value, with the argument that each sets."""
    for action in actions:
        if action.nargs != 0:
            yield from ((name, action.dest) for name in _long(action.option_strings))


def _long(flags: Sequence[str]) -> list[str]:
    return sorted(flag[2:].replace("-", "_") for flag in flags if flag.startswith("--"))


class _Classes(dict[str, Any]):
    """The names in a type that is written as text, as of a class that checkers alone import."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        configs = (each for key, each in sys.modules.items() if key.startswith("vllm.config"))
        values = (vars(each).get(name) for each in configs)
        return next(filter(None, values), None) or type(name, (), {})


def _type_of(field: Field) -> Any:
    if not isinstance(field.type, str):
        return field.type
    declaring = sys.modules[names.AsyncEngineArgs.__module__]
    written = SimpleNamespace(__annotations__={"it": field.type})
    hints = typing.get_type_hints(written, {}, _Classes(vars(declaring)), include_extras=True)
    return hints["it"]


def _keys(field: Field) -> Mapping[str, str]:
    """Return the keys of an argument that is an object of a class; none for any other."""
    kind = _type_of(field)
    kinds = [kind, *typing.get_args(kind)]
    cls: Any = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
    if field.name == "speculative_config":
        # It is declared as a dictionary, of which vLLM makes an object.
        cls = names.SpeculativeConfig
    if cls is None:
        return {}
    changed = _changed(cls)
    return {
        each.name: "Any" if changed & {each.name, "*"} else type_text(_type_of(each))
        for each in dataclasses.fields(cls)
        if each.init
    }


def _changed(cls: Any) -> set[str]:
    """Return the fields that a validator sees before they are judged by their types."""
    decorators = getattr(cls, "__pydantic_decorators__", None)
    validators = decorators.field_validators.values() if decorators else ()
    return {
        name
        for validator in validators
        if validator.info.mode != "after"
        for name in validator.info.fields
    }


def type_text(kind: Any) -> str:
    """Return a type as text: values in quotes, the members of a union with bars between."""
    return " | ".join(dict.fromkeys(_members(kind)))


def _members(kind: Any) -> Iterator[str]:
    kind = getattr(kind, "__value__", kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    name = getattr(origin or kind, "__name__", None) or str(origin or kind).rpartition(".")[2]
    if name in _UNIONS:
        for each in inner:
            yield from _members(each)
    elif name == "Literal":
        yield from map(repr, inner)
    elif name == "Annotated" or hasattr(kind, "__metadata__"):
        yield from _members(inner[0])
    elif name in _COLLECTIONS and inner:
        items = [each for one in inner for each in _members(one) if each != "Ellipsis"]
        held = "str" if "str" in items else " | ".join(item.partition("[")[0] for item in items)
        yield f"{_COLLECTIONS[name]}[{held}]"
    else:
        yield {"NoneType": "None"}.get(name, name)


def _default(field: Field) -> str:
    if field.default is not dataclasses.MISSING:
        return value_text(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return value_text(field.default_factory())
    return REQUIRED


def value_text(value: Any) -> str:
    """Return a default as text that is the same in every process and on every machine."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (set, frozenset)) and value:
        return shorten(f"{{{', '.join(sorted(map(repr, value)))}}}")
    if type(value).__module__ != "builtins":
        # A config's own defaults may hold folders of this machine and memory addresses.
        return f"{type(value).__name__}()"
    if callable(value):
        return str(value.__name__)
    return shorten(repr(value).replace(str(Path.home()), "~"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
