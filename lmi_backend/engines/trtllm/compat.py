"""Every TensorRT-LLM name this project uses, in one place.

Source: the module pages of TensorRT-LLM 1.0.0, 1.1.0 and 1.2.1, and the API reference of 1.3.0rc29;
tests/data/signatures/trtllm.json records them. What `tensorrt_llm.llmapi` has is imported from it:
the modules behind it move (`sampling_params` to `executor/params`, NVIDIA's pull request 17536).
"""

from __future__ import annotations

import inspect
from typing import Any

from tensorrt_llm import LLM, SamplingParams
from tensorrt_llm import __version__ as trtllm_version
from tensorrt_llm.llmapi import GuidedDecodingParams, LoRARequest
from tensorrt_llm.llmapi import RequestError as TrtllmRequestError
from tensorrt_llm.llmapi.llm_utils import update_llm_args_with_extra_dict

__all__ = [
    "LLM",
    "GuidedDecodingParams",
    "LoRARequest",
    "SamplingParams",
    "TrtllmRequestError",
    "follow",
    "mpi_session",
    "takes_trace_headers",
    "trtllm_version",
    "update_llm_args_with_extra_dict",
]


def takes_trace_headers(llm: Any) -> bool:
    """Tell whether `generate_async` has an argument for them; that of 1.0 and 1.1 has not."""
    return "trace_headers" in inspect.signature(llm.generate_async).parameters


def mpi_session(num_ranks: int) -> Any:
    """Return the session in which rank 0 gives the other ranks their work."""
    from mpi4py import MPI  # noqa: PLC0415
    from tensorrt_llm.llmapi import MpiCommSession  # noqa: PLC0415

    return MpiCommSession(comm=MPI.COMM_WORLD, n_workers=num_ranks)


def follow() -> None:
    """Do what rank 0 gives, as the library's own launcher has the other ranks do; until told."""
    from mpi4py import MPI  # noqa: PLC0415
    from mpi4py.futures import MPICommExecutor  # noqa: PLC0415

    with MPICommExecutor(MPI.COMM_WORLD):
        pass
