from ..executor.request import LoRARequest
from ..executor.utils import RequestError
from ..sampling_params import GuidedDecodingParams, SamplingParams
from .llm import LLM
from .mpi_session import MpiCommSession

__all__ = [
    "LLM", "GuidedDecodingParams", "LoRARequest", "MpiCommSession", "RequestError",
    "SamplingParams",
]  # fmt: skip
