"""Complete a model's configuration at load, for folders without a whole config.pbtxt.

Runs before `initialize` in an interpreter that Triton throws away. Triton takes back inputs,
outputs, max_batch_size, the scheduler and the transaction policy; never an instance group.
"""

from __future__ import annotations

from typing import Any

from lmi_backend.repository.tensors import INPUTS, OUTPUTS, Tensor


def complete(config: Any) -> Any:
    """Add tensors and decoupled mode to Triton's ModelConfig.

    What a file says stands; where it contradicts, Triton's own ModelConfig raises.
    """
    config.set_max_batch_size(0)
    config.set_model_transaction_policy({"decoupled": True})
    for tensor in INPUTS:
        config.add_input(_entry(tensor) | {"optional": True})
    for tensor in OUTPUTS:
        config.add_output(_entry(tensor))
    return config


def _entry(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": [tensor.dims]}
