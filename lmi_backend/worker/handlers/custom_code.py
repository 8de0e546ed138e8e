"""Find a user's functions in a model.py."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from lmi_backend.errors import ConfigurationError

Function = Callable[..., Any]

_MARKS: Final = (
    "is_input_formatter",
    "is_output_formatter",
    "is_prediction_handler",
    "is_init_handler",
)
_OLDEST: Final = "first_token"
_SAGEMAKER: Final = ("input_fn", "predict_fn", "output_fn")


@dataclass(frozen=True)
class CustomCode:
    """What a model.py defines; None for what it does not."""

    handler: Function | None = None
    input_formatter: Function | None = None
    output_formatter: Function | None = None

    def __bool__(self) -> bool:
        return any((self.handler, self.input_formatter, self.output_formatter))


def load_custom_code(file: Path, handler: str = "handle") -> CustomCode:
    """Import a user's file and return its functions.

    Raises:
        ConfigurationError: it cannot be imported; names file, line and cause.
    """
    # Where `djl_python` is, and nothing else.
    if (folder := str(Path(__file__).parent / "provided")) not in sys.path:
        sys.path.insert(0, folder)
    module = _import(file)
    marked = {
        mark: function
        for function in vars(module).values()
        if callable(function)
        for mark in _MARKS
        if getattr(function, mark, False)
    }
    if "is_init_handler" in marked:
        if "is_prediction_handler" in marked:
            return CustomCode(handler=_model_handler(_decorated(marked), file.parent))
        message = f"{file}: has an init_handler, whose model only a predict_handler next to it gets"
        raise ConfigurationError(message)
    code = CustomCode(
        handler=marked.get("is_prediction_handler") or getattr(module, handler, None),
        input_formatter=marked.get("is_input_formatter"),
        output_formatter=marked.get("is_output_formatter"),
    )
    if code.output_formatter and _OLDEST in inspect.signature(code.output_formatter).parameters:
        message = (
            f"{file}: its output_formatter takes {_OLDEST}, and is called with no single token"
        )
        raise ConfigurationError(f"{message}; accepted: a function of a TextGenerationOutput")
    if code or not hasattr(module, "model_fn"):
        return code
    return CustomCode(handler=_model_handler(_sagemaker(module), file.parent))


def load_adapter_code(folder: str) -> CustomCode:
    """Import the model.py of a LoRA adapter, if it has one; raises like `load_custom_code`."""
    file = Path(folder) / "model.py"
    return load_custom_code(file) if file.is_file() else CustomCode()


def _import(file: Path) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    # A name of its own: two adapters may each have a model.py.
    name = f"lmi_custom_{file.parent.name}_{file.stem}".replace("-", "_").replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{file}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(file)
        ]
        where = f"{file}:{lines[-1]}" if lines else str(file)
        message = f"{where}: cannot be imported: {type(error).__name__}: {error}"
        raise ConfigurationError(message) from error
    return module


class _Functions(NamedTuple):
    load: Function
    """Gets the model's folder, and returns the model."""
    read: Function | None
    """Gets the Input, and returns the data; LMI's reading of the body where there is none."""
    predict: Function | None
    """Gets the data and the model; the model itself is called where there is none."""
    write: Function | None
    """Gets what came of it, and the type that the client accepts; returns the body."""


def _sagemaker(module: ModuleType) -> _Functions:
    """Return SageMaker's four functions; only `model_fn` must be there."""
    read, predict, write = (getattr(module, name, None) for name in _SAGEMAKER)

    def read_body(inputs: Any) -> Any:
        content_type = inputs.get_property("Content-Type") or "application/json"
        return read(inputs.get_as_bytes(), content_type) if read else None

    return _Functions(module.model_fn, read_body if read else None, predict, write)


def _decorated(marked: Mapping[str, Function]) -> _Functions:
    """Return the functions that LMI's decorators mark."""
    read, write = marked.get("is_input_formatter"), marked.get("is_output_formatter")

    def read_body(inputs: Any) -> Any:
        from djl_python.encode_decode import decode  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        return read(decode(inputs)) if read else None

    def write_body(prediction: Any, _accept: str) -> Any:
        return write(prediction) if write else None

    return _Functions(
        marked["is_init_handler"],
        read_body if read else None,
        marked["is_prediction_handler"],
        write_body if write else None,
    )


def _model_handler(functions: _Functions, folder: Path) -> Function:
    """Return a handler that loads a model with its first call."""
    load, read, predict, write = functions
    state: dict[str, Any] = {}

    def handle(inputs: Any) -> Any:
        from djl_python import Output  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
        from djl_python.encode_decode import decode, encode  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        if inputs.is_empty():
            state["model"] = load(inputs.get_property("model_dir") or str(folder))
            return None
        accept = inputs.get_property("Accept") or "application/json"
        body = read(inputs) if read else decode(inputs)
        model = state["model"]
        prediction = predict(body, model) if predict else model(body)
        if write:
            return Output().add(write(prediction, accept))
        return encode(Output(), prediction, accept)

    return handle
