"""A double of AWS's plugin vllm-neuron 0.24.0.1.1.0, in its mode for machines without Neuron cores.

As the plugin has it (vllm_neuron/__init__.py, and AWS's "vLLM Integration Design Reference" of
Neuron 2.32): its entry point, when it registers, that it hides all GPUs, and where its platform is.
Nothing of it compiles or computes on Neuron cores: vLLM's own CPU worker runs the model.
"""

import glob
import os
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""


def register() -> str | None:
    """Return the platform where there are Neuron cores, or its mode without them is asked for."""
    if os.environ.get("VLLM_NEURON_CPU_MODE", "0") != "1" and not glob.glob("/dev/neuron*"):
        warnings.warn(
            "No Neuron devices found. Skipping Neuron plugin registration.",
            category=UserWarning,
            stacklevel=2,
        )
        return None
    return "vllm_neuron.vllm.platform.NeuronPlatform"
