"""Where the model, its adapters, the user's code and the interpreter are.

The user's own code next to the properties is read, and never imported.
"""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import PlanError
from lmi_backend.fetch.hub import HUB_ID
from lmi_backend.files import problem_of, read_bounded
from lmi_backend.options.engine_choice import find_interpreter, own_file
from lmi_backend.options.model_store import MODEL_FILES, has_model
from lmi_backend.options.spec import PREFIX
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import vllm
from lmi_backend.printable import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.engine_config import EngineConfig
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


S3 = "s3://"
# Linux's own bound. To look for links in a megabyte takes seconds.
_LONGEST_PATH = 4096
_ACCEPTED = "a hub id, a local folder or an s3:// prefix"
_HUB_PAGES = ("https://huggingface.co/", "https://hf.co/", "hf://")


@dataclass(frozen=True)
class Sources:
    """What a plan needs in addition to the options, looked up once."""

    custom: CustomFile | None
    """The user's own code."""
    model: str
    python: str


def find_sources(options: LmiOptions, environment: Mapping[str, str]) -> Sources:
    """Find the user's code, the model and the interpreter."""
    custom = find_custom(options)
    return Sources(custom, find_model(options, custom), find_interpreter(options, environment))


def find_model(options: LmiOptions, custom: CustomFile | None = None) -> str:
    """Return the local folder, hub id or s3:// prefix; empty for an engine that needs no model.

    A relative path starts at the folder of serving.properties.

    Raises:
        OptionError: `option.model_id` cannot be a model.
        PlanError: there is no model in the folder either.
    """
    if not options.choice.spec.implementation.needs_model:
        return ""
    model_id = options[opt.MODEL_ID]
    if not model_id and custom is not None and custom.replaces_engine:
        return ""
    if problem := _why_no_model(model_id):
        raise options.error(opt.MODEL_ID, f"{problem}; accepted: {_ACCEPTED}")
    if model_id.startswith(S3):
        return model_id
    if model_id:
        return _in_a_form_that_is_read(options, _local_or_hub(options, model_id))
    if has_model(options.folder):
        return _in_a_form_that_is_read(options, str(options.folder.resolve()))
    raise PlanError(
        f"{options.folder}: no model: option.model_id is not set and the folder has no "
        f"{' or '.join(MODEL_FILES)}"
    )


def _why_no_model(model_id: str) -> str:
    """Return why a name that people write elsewhere is no model here; empty if it may be one."""
    if model_id.lower().startswith(_HUB_PAGES):
        return "is a page of the Hub; write the id alone, as organisation/model"
    if "://" in model_id and not model_id.startswith(S3):
        return "is a url that is not fetched"
    return ""


def _in_a_form_that_is_read(options: LmiOptions, model: str) -> str:
    implementation = options.choice.spec.implementation
    config, mistral = (os.path.isfile(os.path.join(model, name)) for name in MODEL_FILES)
    if mistral and not config and not implementation.reads_mistral:
        raise PlanError(
            f"{model}: has params.json and no config.json: Mistral's own format, which "
            f"{implementation.title} does not read; vLLM does"
        )
    return model


def _local_or_hub(options: LmiOptions, model_id: str) -> str:
    # These functions, unlike pathlib's, take any text, and say of one that is too long: no folder.
    path = options.folder / os.path.expanduser(model_id)
    if os.path.isdir(path):
        return str(path.resolve())
    if options.for_another_machine and model_id.startswith("/"):
        return model_id
    if model_id.startswith(("/", "./", "../", "~")):
        raise options.error(opt.MODEL_ID, f"is not a folder (looked at {os.path.abspath(path)})")
    if not HUB_ID.fullmatch(model_id):
        problem = "is neither a folder nor a hub id; accepted: organisation/model"
        raise options.error(opt.MODEL_ID, problem)
    return model_id


def find_adapters(options: LmiOptions) -> dict[str, str]:
    """Return name and folder of each LoRA adapter; none when LoRA is off.

    Raises:
        OptionError: option.lora_modules names adapters that cannot be served.
    """
    named: Mapping[str, str] = options[vllm.LORA_MODULES]
    if not options[vllm.ENABLE_LORA]:
        if named:
            raise options.error(vllm.LORA_MODULES, f"needs {vllm.ENABLE_LORA.name}=true")
        return {}
    folder = options.folder / options[vllm.ADAPTERS]
    configs = sorted(folder.glob("*/adapter_config.json")) if os.path.isdir(folder) else ()
    own = {config.parent.name: str(config.parent.resolve()) for config in configs}
    further = {name: _adapter_place(options, path) for name, path in named.items()}
    for name, place in further.items():
        if own.get(name, place) != place:
            problem = f"names {name}, and {folder} has another adapter of this name"
            raise options.error(vllm.LORA_MODULES, problem)
    return own | further


def missing_adapters(adapters: Mapping[str, str]) -> list[str]:
    """Return a note for each adapter whose folder is not on this machine."""
    return [
        f"{vllm.LORA_MODULES.name} names {name}, whose folder is not here (looked at {place})"
        for name, place in adapters.items()
        if os.path.isabs(place) and not os.path.isdir(place)
    ]


def broken_adapters(config: EngineConfig) -> list[str]:
    """Return a note for each adapter that no engine could load; the others serve."""
    max_rank = config.arguments.get("max_lora_rank", sys.maxsize)
    return [
        f"requests for adapter {name} will fail: {problem}"
        for name, place in config.adapters.items()
        if os.path.isdir(place) and (problem := problem_of(place, max_rank))
    ]


def _adapter_place(options: LmiOptions, path: str) -> str:
    """Return an adapter's folder, or its hub id, which vLLM fetches."""
    folder = options.folder / os.path.expanduser(path)
    takes_hub = options.choice.spec.implementation.fetches_adapters
    if not os.path.isdir(folder) and takes_hub and HUB_ID.fullmatch(path):
        return path
    return str(folder.resolve())


def find_adapter_roots(options: LmiOptions) -> tuple[str, ...]:
    """Return the folders from which adapters may be loaded while serving; first the model's own.

    Raises:
        OptionError: one of those named does not exist, or cannot be a folder.
    """
    if not options[vllm.ENABLE_LORA]:
        return ()
    own: str = options[vllm.ADAPTERS]
    if len(os.fsencode(own)) > _LONGEST_PATH:
        problem = f"is not a folder's name; accepted: at most {_LONGEST_PATH} bytes"
        raise options.error(vllm.ADAPTERS, problem)
    further = [root.strip() for root in options[vllm.ADAPTER_ROOTS].split(",") if root.strip()]
    for root in further:
        is_there = options.for_another_machine and os.path.isabs(root)
        if not is_there and not os.path.isdir(options.folder / root):
            raise options.error(vllm.ADAPTER_ROOTS, f"names {root}, which is not a folder")
    return tuple(str((options.folder / root).resolve()) for root in (own, ".", *further))
