"""The platform, with the values of vllm_neuron/vllm/platform.py.

It is out of tree (OOT), so `is_cpu()` and `is_cuda_alike()` are both false, whatever computes.
"""

import os
from typing import Any, ClassVar

import torch
from vllm.platforms import PlatformEnum
from vllm.platforms.cpu import CpuPlatform

# The plugin registers an accelerator with torch, which vLLM frees at the end of its core.
torch.accelerator.empty_cache = lambda: None

_CPU_MODE = os.environ.get("VLLM_NEURON_CPU_MODE") == "1"


class NeuronPlatform(CpuPlatform):
    _enum = PlatformEnum.OOT
    device_name: str = "cpu" if _CPU_MODE else "neuron"
    device_type: str = "cpu" if _CPU_MODE else "neuron"
    ray_device_key: str = "neuron_cores"
    supported_quantization: ClassVar[list[str]] = [
        "neuron_quant",
        "compressed-tensors",
        "modelopt",
        "fp8",
    ]
    device_control_env_var: str = "NEURON_VISIBLE_DEVICES"

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return f"neuron:{device_id}"

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        parallel_config = vllm_config.parallel_config
        if parallel_config.worker_cls == "auto":
            parallel_config.worker_cls = "vllm_neuron.vllm.worker.neuron_worker.NeuronWorker"
        super().check_and_update_config(vllm_config)

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: Any) -> None:
        if not vllm_config.cache_config.user_specified_block_size:
            vllm_config.cache_config.block_size = 32

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False
