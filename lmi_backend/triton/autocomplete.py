"""Complete a model's configuration at load, for folders without a whole config.pbtxt.

Runs before `initialize` in an interpreter that Triton throws away. Triton takes back inputs,
outputs, max_batch_size, the scheduler and the transaction policy; never an instance group.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import load_options
from lmi_backend.options.table import server
from lmi_backend.repository.model_config import queue_policy
from lmi_backend.repository.tensors import INPUTS, OUTPUTS, Tensor


def complete(config: Any) -> Any:
    """Add tensors, decoupled mode and the queue's bound to Triton's ModelConfig.

    What a file says stands; where it contradicts, Triton's own ModelConfig raises.
    """
    config.set_max_batch_size(0)
    config.set_model_transaction_policy({"decoupled": True})
    for tensor in INPUTS:
        config.add_input(_entry(tensor) | {"optional": True})
    for tensor in OUTPUTS:
        config.add_output(_entry(tensor))
    if "dynamic_batching" not in config.as_dict():
        config.set_dynamic_batching()
        # There is no setter for the policy, but what the dictionary holds is taken back
        # (seen on 24.10).
        config.as_dict()["dynamic_batching"]["default_queue_policy"] = queue_policy(_queue_size())
    return config


def _queue_size() -> int:
    folder = Path(pb_utils.get_model_dir()).parent
    try:
        return load_options(folder, os.environ)[server.JOB_QUEUE_SIZE]
    except ConfigurationError:
        # `initialize` meets the same error and reports it with the load.
        return server.JOB_QUEUE_SIZE.default


def _entry(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": tensor.data_type, "dims": [tensor.dims]}
