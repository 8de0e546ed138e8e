"""The part of Triton's ModelConfig that we write.

Field names are those of `model_config.proto` in triton-inference-server/common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.repository.variants import MAIN, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.repository.tensors import Tensor

WARMUP_FILE: str = "prompt"
"""File in the model's warmup folder."""


def model_config(
    *, name: str, parameters: Mapping[str, str], variant: Variant = MAIN, warmup: bool = False
) -> dict[str, object]:
    """Return the ModelConfig of a model, in the order of a written file.

    It does not depend on the plan: what the model runs is read when it is loaded. Triton shows all
    of it to every client, so no option and no path may be in the parameters. With `warmup` Triton
    sends one request before it calls the model ready.
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
    } | ({"model_warmup": [_warmup()]} if warmup else {})


def _warmup() -> dict[str, object]:
    """One request; its prompt is in a file, as Triton fills strings with nothing otherwise."""
    text = {"data_type": Word("TYPE_STRING"), "dims": [1], "input_data_file": WARMUP_FILE}
    # Triton skips a sample of batch_size 0, also where max_batch_size is 0.
    return {"name": "one answer", "batch_size": 1, "inputs": [{"key": "text_input", "value": text}]}


class Word(str):
    """An enumeration value: written without quotes."""

    __slots__ = ()


def _tensor(tensor: Tensor) -> dict[str, object]:
    return {"name": tensor.name, "data_type": Word(tensor.data_type), "dims": tensor.shape}
