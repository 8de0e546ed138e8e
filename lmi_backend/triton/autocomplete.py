"""Complete a model's configuration at load, for folders without a whole config.pbtxt.

It runs before `initialize`, in an interpreter that Triton discards. Triton takes back inputs,
outputs, max_batch_size, the scheduler and the transaction policy; never an instance group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmi_backend.triton.hand_written import checked_variant

if TYPE_CHECKING:
    from lmi_backend.repository.tensors import Tensor


def complete(config: Any) -> Any:
    """Add tensors and decoupled mode to Triton's ModelConfig.

    Raises:
        PlanError: a file says something else.
    """
    variant = checked_variant(config.as_dict())
    config.set_max_batch_size(variant.max_batch_size)
    config.set_model_transaction_policy({"decoupled": variant.is_decoupled})
    for tensor in variant.inputs:
        config.add_input(_field(tensor) | {"optional": True})
    for tensor in variant.outputs:
        config.add_output(_field(tensor))
    return config


def _field(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": tensor.shape}
