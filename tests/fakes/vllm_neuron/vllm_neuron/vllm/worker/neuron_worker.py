"""The worker: vLLM's own for the CPU, in whose process alone the platform says that it is one."""

from vllm.platforms import PlatformEnum
from vllm.v1.worker.cpu_worker import CPUWorker

from ..platform import NeuronPlatform

NeuronPlatform._enum = PlatformEnum.CPU


class NeuronWorker(CPUWorker):
    """Computes on the CPU, where the plugin's computes on Neuron cores."""
