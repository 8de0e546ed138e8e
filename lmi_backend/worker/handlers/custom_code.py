"""Find a user's functions in a model.py."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from lmi_backend.errors import ConfigurationError

Function = Callable[..., Any]

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
    make_importable()
    module = _import(file)
    marked = {
        mark: function
        for function in vars(module).values()
        if callable(function)
        for mark in ("is_input_formatter", "is_output_formatter", "is_prediction_handler")
        if getattr(function, mark, False)
    }
    code = CustomCode(
        handler=marked.get("is_prediction_handler") or getattr(module, handler, None),
        input_formatter=marked.get("is_input_formatter"),
        output_formatter=marked.get("is_output_formatter"),
    )
    if code or not hasattr(module, "model_fn"):
        return code
    return CustomCode(handler=_sagemaker(module, file.parent))


def load_adapter_code(folder: str) -> CustomCode:
    """Import the model.py of a LoRA adapter, if it has one; raises like `load_custom_code`."""
    file = Path(folder) / "model.py"
    return load_custom_code(file) if file.is_file() else CustomCode()


def make_importable() -> None:
    """Let users' code import our `djl_python`."""
    folder = str(Path(__file__).parent / "provided")
    if folder not in sys.path:
        sys.path.insert(0, folder)


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


def _sagemaker(module: ModuleType, folder: Path) -> Function:
    """Return a handler made of SageMaker's four functions; only `model_fn` must be there."""
    load: Function = module.model_fn
    read, predict, write = (getattr(module, name, None) for name in _SAGEMAKER)
    state: dict[str, Any] = {}

    def handle(inputs: Any) -> Any:
        from djl_python import Output  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
        from djl_python.encode_decode import decode, encode  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        if inputs.is_empty():
            state["model"] = load(inputs.get_property("model_dir") or str(folder))
            return None
        content_type = inputs.get_property("Content-Type") or "application/json"
        accept = inputs.get_property("Accept") or "application/json"
        body = read(inputs.get_as_bytes(), content_type) if read else decode(inputs)
        model = state["model"]
        prediction = predict(body, model) if predict else model(body)
        if write:
            return Output().add(write(prediction, accept))
        return encode(Output(), prediction, accept)

    return handle
