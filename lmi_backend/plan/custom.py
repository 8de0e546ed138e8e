"""Find the user's own code next to the properties, without importing it."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.bounded_files import read_bounded
from lmi_backend.errors import PlanError
from lmi_backend.options.engine_choice import own_file
from lmi_backend.options.model_store import has_model
from lmi_backend.options.spec import PREFIX
from lmi_backend.options.table import common as opt
from lmi_backend.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.options import LmiOptions

CODE_FILE: Final = "model.py"
"""Users' code, of a model or of an adapter."""
_MOST_BYTES: Final = 4 * MIB
_SAGEMAKER: Final = "model_fn"
_FORMATTERS: Final = frozenset({"input_formatter", "output_formatter"})
_INIT: Final = "init_handler"
_PREDICTS: Final = frozenset({"predict_handler", "prediction_handler"})


@dataclass(frozen=True)
class CustomFile:
    """A user's Python file."""

    file: str
    handler: str
    replaces_engine: bool
    """Whether its handler answers everything; an `async def` may leave requests to the engine."""


def find_custom(options: LmiOptions) -> CustomFile | None:
    """Return the user's code: option.entryPoint, or a model.py next to the properties.

    Raises:
        PlanError: it is no Python, or defines nothing LMI knows.
    """
    entry = own_file(options)
    file = options.folder / (entry or CODE_FILE)
    if (options.folder / "MAR-INF").is_dir():
        raise PlanError(f"{options.folder}: is an archive of TorchServe, which is not served")
    if not os.path.isfile(file):
        if entry:
            raise options.error(opt.ENTRY_POINT, f"is not a file (looked at {file})")
        return None
    handler: str = options[opt.HANDLER]
    try:
        tree = ast.parse(read_bounded(file, _MOST_BYTES), str(file))
    except OSError as error:
        raise PlanError(f"{file}: cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PlanError(f"{file}: is not Python: {error}") from error
    functions = dict(_functions(tree))
    answers = functions.get(handler) or next(
        (node for node in functions.values() if _decorators(node) & _PREDICTS), None
    )
    if any(_INIT in _decorators(node) for node in functions.values()):
        if not any(_decorators(node) & _PREDICTS for node in functions.values()):
            raise PlanError(f"{file}: has an init_handler, but no predict_handler to get its model")
        return CustomFile(str(file.resolve()), handler, replaces_engine=True)
    if answers is not None or _SAGEMAKER in functions:
        may_leave = isinstance(answers, ast.AsyncFunctionDef) and _has_engine(options)
        return CustomFile(str(file.resolve()), handler, replaces_engine=not may_leave)
    if any(_decorators(node) & _FORMATTERS for node in functions.values()):
        return CustomFile(str(file.resolve()), handler, replaces_engine=False)
    raise PlanError(
        f"{file}: defines neither a function {handler}, nor model_fn, nor functions decorated with "
        "input_formatter or output_formatter"
    )


def _has_engine(options: LmiOptions) -> bool:
    """Tell whether there is a model to generate with, or an engine that needs none."""
    return (
        not options.choice.spec.implementation.needs_model
        or bool(options[opt.MODEL_ID])
        or has_model(options.folder)
    )


def handler_properties(options: LmiOptions) -> dict[str, str]:
    """Return all options as LMI hands them to a handler: text, without `option.`."""
    written = {name: setting.value for name, setting in options.settings.items()}
    written |= {name: setting.value for name, setting in options.passthrough.items()}
    plain = {name.removeprefix(PREFIX): value for name, value in written.items()}
    return plain | {"model_dir": str(Path(options.folder).resolve())}


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, node) for alias in node.names)


def _decorators(node: ast.AST) -> set[str]:
    marks = getattr(node, "decorator_list", [])
    names = (mark.attr if isinstance(mark, ast.Attribute) else mark for mark in marks)
    return {name.id if isinstance(name, ast.Name) else str(name) for name in names}
