"""Every vLLM name this project uses, in one place.

vLLM moves its modules between releases. These paths hold for 0.32 and, unless said, back to
0.11; when one moves, this file changes and no other. Nothing here is imported from
`vllm.entrypoints`, which moves most.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from vllm import __version__ as vllm_version
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError as VllmEngineDeadError
from vllm.v1.engine.exceptions import EngineGenerateError
from vllm.v1.metrics.loggers import StatLoggerBase

try:  # 0.20: moved out of vllm.inputs.data and renamed
    from vllm.inputs import tokens_input
except ImportError:
    from vllm.inputs.data import token_inputs as tokens_input

try:  # 0.12: renamed
    from vllm.sampling_params import StructuredOutputsParams
except ImportError:
    from vllm.sampling_params import GuidedDecodingParams as StructuredOutputsParams

try:  # 0.13: moved
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser

try:  # appeared between 0.20 and 0.32; ValueError before
    from vllm.exceptions import VLLMClientError
except ImportError:
    VLLMClientError = ValueError

__all__ = [
    "AsyncEngineArgs",
    "AsyncLLM",
    "EngineGenerateError",
    "LoRARequest",
    "RequestOutputKind",
    "SamplingParams",
    "StatLoggerBase",
    "StructuredOutputsParams",
    "VLLMClientError",
    "VllmEngineDeadError",
    "argument_parser",
    "default_sampling",
    "engine_argument_names",
    "tokens_input",
    "vllm_version",
]


def engine_argument_names() -> frozenset[str]:
    """Return the names AsyncEngineArgs takes in the installed version."""
    return frozenset(field.name for field in dataclasses.fields(AsyncEngineArgs))


def argument_parser() -> argparse.ArgumentParser:
    """Return vLLM's own command-line parser of engine arguments; it raises, never exits."""
    parser: argparse.ArgumentParser = AsyncEngineArgs.add_cli_args(
        FlexibleArgumentParser(add_help=False, exit_on_error=False)
    )
    return parser


def default_sampling(engine: Any) -> dict[str, Any]:
    """Return the sampling values of the model's generation_config.json that differ from vLLM's."""
    model_config = engine.model_config
    defaults: dict[str, Any] = model_config.get_diff_sampling_param()
    return defaults
