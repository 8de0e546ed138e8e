"""The part of Triton's ModelConfig that we write, and its text in config.pbtxt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lmi_backend.repository.variants import MAIN, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.repository.tensors import Tensor


def model_config(
    *, name: str, parameters: Mapping[str, str], variant: Variant = MAIN
) -> dict[str, object]:
    """Return the ModelConfig of a model, in the order of a written file.

    It does not depend on the plan: what the model runs is read when it is loaded. Triton shows all
    of it to every client, so no option and no path may be in the parameters.
    """
    return {
        "name": name,
        "backend": "python",
        # 0: Triton adds no batch dimension, the engine batches continuously.
        "max_batch_size": variant.max_batch_size,
        "model_transaction_policy": {"decoupled": variant.is_decoupled},
        "input": [_tensor(tensor) | {"optional": True} for tensor in variant.inputs],
        "output": [_tensor(tensor) for tensor in variant.outputs],
        # Without a group a GPU server would start a whole copy of the model on each device.
        "instance_group": [{"name": name, "kind": Word("KIND_MODEL"), "count": 1}],
        # No dynamic_batching: with a queue policy Triton's batcher serves a burst of requests one
        # in 0.5 s (see Service.submit), and without one it has nothing to do.
        "parameters": [
            {"key": key, "value": {"string_value": value}} for key, value in parameters.items()
        ],
    }


class Word(str):
    """An enumeration value: written without quotes."""

    __slots__ = ()


def _tensor(tensor: Tensor) -> dict[str, object]:
    return {"name": tensor.name, "data_type": Word(tensor.data_type), "dims": tensor.shape}


def render(message: dict[str, object]) -> str:
    """Return a message as protobuf text; a list of messages becomes a repeated field."""
    return "".join(_field(name, value, "") for name, value in message.items())


def _field(name: str, value: object, indent: str) -> str:
    if isinstance(value, list):
        if all(isinstance(item, dict) for item in value):
            return "".join(_field(name, item, indent) for item in value)
        return f"{indent}{name}: [ {', '.join(_scalar(item) for item in value)} ]\n"
    if isinstance(value, dict):
        body = "".join(_field(key, item, indent + "  ") for key, item in value.items())
        return f"{indent}{name} {{\n{body}{indent}}}\n"
    return f"{indent}{name}: {_scalar(value)}\n"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        # JSON's escapes are a subset of protobuf's, once characters stay as they are.
        return json.dumps(value, ensure_ascii=False)
    return str(value)
