import ast
import dataclasses
import importlib
import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest

import lmi_backend
from lmi_backend import ipc
from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg

TO_WORKER = typing.get_args(msg.ToWorker)
FROM_WORKER = typing.get_args(msg.FromWorker)
FROM_CLIENT = typing.get_args(msg.FromClient)
TO_CLIENT = typing.get_args(msg.ToClient)


def test_each_message_goes_one_way_and_none_is_forgotten() -> None:
    declared = {
        kind
        for name, kind in vars(msg).items()
        if isinstance(kind, type)
        and kind.__module__ == msg.__name__
        and name[0] != "_"
        # A part of others.
        and kind is not msg.Buffering
    }
    assert {*TO_WORKER, *FROM_WORKER, *FROM_CLIENT, *TO_CLIENT} == declared
    assert not set(TO_WORKER) & set(FROM_WORKER)


@pytest.mark.parametrize("kind", [*TO_WORKER, *FROM_WORKER])
def test_a_message_is_a_frozen_tagged_array(kind: type[msgspec.Struct]) -> None:
    config = kind.__struct_config__
    assert (config.frozen, config.array_like, config.tag) == (True, True, kind.__name__)


def test_a_field_that_was_appended_later_may_be_missing() -> None:
    data = msgspec.msgpack.encode(["Output", 7, [1, "text", 1]])
    assert msgspec.msgpack.decode(data, type=msg.FromWorker) == msg.Output(7, Delta("text", 1))


LAYOUT = Path(__file__).resolve().parents[2] / "data" / "wire_layout.txt"


def test_a_layout_changes_with_its_number() -> None:
    """UPDATE_GOLDEN=1 writes the file of a new number."""
    made = f"PROTOCOL {msg.PROTOCOL}\n{''.join(sorted(_layouts()))}"
    recorded = LAYOUT.read_text(encoding="utf-8")
    is_new = made.partition("\n")[0] != recorded.partition("\n")[0]
    if os.environ.get("UPDATE_GOLDEN") and is_new:
        LAYOUT.write_text(made, encoding="utf-8")
        return
    assert made == recorded, "raise PROTOCOL in ipc/messages.py, then run this with UPDATE_GOLDEN=1"


def test_no_type_changes_itself_as_it_is_read() -> None:
    """Before msgspec 0.21, a struct that sets a field in `__post_init__` ends the process."""
    for path in Path(lmi_backend.__file__).parent.rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, ast.ClassDef) and any(
                "Struct" in ast.unparse(b) for b in each.bases
            ):
                methods = [m for m in each.body if isinstance(m, ast.FunctionDef)]
                (*after,) = (ast.unparse(m) for m in methods if m.name == "__post_init__")
                assert not re.search(r"self\.\w+ = ", "".join(after)), f"{path}: {each.name}"


def _layouts() -> Iterator[str]:
    """Yield a line for each type that crosses a socket: its form, and its fields in their order."""
    names = (f"{ipc.__name__}.{each.name}" for each in iter_modules(ipc.__path__))
    modules = map(importlib.import_module, names)
    values = [each for module in modules for each in vars(module).values()]
    waiting, seen = [each for each in values if _is_struct(each)], set[Any]()
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        hints = typing.get_type_hints(kind)
        own = getattr(kind, "__struct_fields__", hints)
        fields = {name: hints[name] for name in own if name[0] != "_"}
        config = getattr(kind, "__struct_config__", None)
        form = (
            f"{config.tag or 'no tag'}, {'array' if config.array_like else 'map'}"
            if config
            else "map"
        )
        texts = (f"{name}: {_text(each)}" for name, each in fields.items())
        yield f"{kind.__name__} ({form}): {'; '.join(texts)}\n"
        waiting += [
            each for field in fields.values() for each in _parts(field) if _has_fields(each)
        ]


def _parts(kind: Any) -> Iterator[Any]:
    yield kind
    for each in typing.get_args(kind):
        yield from _parts(each)


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__[0] != "_"


def _has_fields(kind: object) -> bool:
    return _is_struct(kind) or dataclasses.is_dataclass(kind)


def _text(kind: object) -> str:
    text = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    return re.sub(r"\b(typing|collections\.abc|lmi_backend[\w.]*)\.(?=\w)", "", text)
