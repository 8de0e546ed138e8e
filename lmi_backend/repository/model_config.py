"""The part of Triton's ModelConfig that we write.

Field names are those of `model_config.proto` in triton-inference-server/common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmi_backend.repository.tensors import INPUTS, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.plan import EnginePlan
    from lmi_backend.repository.tensors import Tensor

MODEL_DIR: str = "model_dir"
"""Parameter: folder of the user's serving.properties, when paths in it start there."""


def model_config(
    plan: EnginePlan, *, name: str, backend: str = "python", parameters: Mapping[str, str]
) -> dict[str, Any]:
    """Return the ModelConfig of a planned model, in the order of a written file."""
    return {
        "name": name,
        "backend": backend,
        # 0: Triton adds no batch dimension, the engine batches continuously.
        "max_batch_size": 0,
        "model_transaction_policy": {"decoupled": True},
        "input": [_tensor(tensor) | {"optional": True} for tensor in INPUTS],
        "output": [_tensor(tensor) for tensor in OUTPUTS],
        # Without a group a GPU server would start a whole copy of the model on each device.
        "instance_group": [{"name": name, "kind": Word("KIND_MODEL"), "count": 1}],
        "dynamic_batching": {"default_queue_policy": queue_policy(plan.queue_size)},
        "parameters": [
            {"key": key, "value": {"string_value": value}} for key, value in parameters.items()
        ],
    }


def queue_policy(queue_size: int) -> dict[str, Any]:
    """Bound Triton's queue: one request more is refused at once with a true 503."""
    return {"max_queue_size": queue_size}


class Word(str):
    """An enumeration value: written without quotes."""

    __slots__ = ()


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": Word(tensor.data_type), "dims": [tensor.dims]}
