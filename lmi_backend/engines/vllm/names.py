"""Every name of vLLM that this package imports: `names.AsyncLLM` is vLLM's, wherever it is.

vLLM moves its modules between releases. The table has the places of each name since 0.11. A class
that a later release moves is looked for among the modules of vLLM that are loaded. Each name is
imported when it is first used: one that is gone stops only what needs it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final, NamedTuple


class MissingNameError(ImportError):
    """This vLLM lacks a name."""


class NeverRaised(Exception):
    """Stands in for an exception that this vLLM does not have."""


class Name(NamedTuple):
    places: tuple[str, ...]
    """The modules that have had it, the newest first; a colon is before another name there."""
    instead: Any = ...
    """What serves where there is none; an ellipsis if nothing does."""


def _of(*places: str, instead: Any = ...) -> Name:
    return Name(places, instead)


_V1: Final = "vllm.v1.engine"
_OPENAI: Final = "vllm.entrypoints.openai"
_LAUNCHERS: Final = "vllm.entrypoints.launchers"
_REGISTRY: Final = "vllm.model_executor.models.registry"
NAMES: Final = {
    "vllm_version": _of("vllm:__version__"),
    # The engine.
    "AsyncEngineArgs": _of("vllm.engine.arg_utils"),
    "AsyncLLM": _of(f"{_V1}.async_llm"),
    "UsageContext": _of("vllm.usage.usage_lib"),
    "FlexibleArgumentParser": _of("vllm.utils.argparse_utils", "vllm.utils"),
    "EngineDeadError": _of(f"{_V1}.exceptions", instead=NeverRaised),
    "EngineGenerateError": _of(f"{_V1}.exceptions", instead=NeverRaised),
    "VLLMClientError": _of("vllm.exceptions", instead=ValueError),  # 0.27
    "VLLMValidationError": _of("vllm.exceptions", instead=ValueError),  # 0.14
    # Requests.
    "SamplingParams": _of("vllm.sampling_params"),
    "RequestOutputKind": _of("vllm.sampling_params"),
    "StructuredOutputsParams": _of(
        "vllm.sampling_params", "vllm.sampling_params:GuidedDecodingParams"
    ),
    "tokens_input": _of("vllm.inputs", "vllm.inputs:token_inputs", instead=None),
    "LoRARequest": _of("vllm.lora.request"),
    # Structured outputs.
    "GuidanceBackend": _of("vllm.v1.structured_output.backend_guidance", instead=None),
    # Outputs.
    "RequestOutput": _of("vllm.outputs"),
    "CompletionOutput": _of("vllm.outputs"),
    "EngineCoreOutput": _of(_V1),
    "EngineCoreRequest": _of(_V1),
    "LogprobsLists": _of("vllm.v1.outputs"),
    "RequestOutputCollector": _of(f"{_V1}.output_processor"),
    "LogprobsProcessor": _of(f"{_V1}.logprobs"),
    "logprobs": _of(f"{_V1}.logprobs:*"),
    "IncrementalDetokenizer": _of(f"{_V1}.detokenizer"),
    "PrometheusStatLogger": _of("vllm.v1.metrics.loggers"),
    "AdapterLogitsProcessor": _of("vllm.v1.sample.logits_processor"),
    # 0.31: its second model runner takes no other.
    "LogitsProcessor": _of("vllm.v1.worker.gpu.sample.logits_processor", instead=None),
    "envs": _of("vllm.envs:*"),
    # A core on a CPU.
    "current_platform": _of("vllm.platforms"),
    "UniProcExecutor": _of("vllm.v1.executor.uniproc_executor", "vllm.v1.executor.abstract"),
    "OMPProcessManager": _of("vllm.utils.ompmultiprocessing"),  # 0.20
    "CPUWorker": _of("vllm.v1.worker.cpu_worker"),
    "PunicaWrapperCPU": _of("vllm.lora.punica_wrapper.punica_cpu"),
    # Ranks.
    "InprocClient": _of(f"{_V1}.core_client"),
    "EngineCoreClient": _of(f"{_V1}.core_client"),
    "EngineCoreOutputs": _of(_V1),
    "Executor": _of("vllm.v1.executor.abstract"),
    "FinishReason": _of(_V1),
    "MsgpackDecoder": _of("vllm.v1.serial_utils"),
    "MsgpackEncoder": _of("vllm.v1.serial_utils"),
    "run_headless": _of("vllm.entrypoints.cli.serve"),
    # The server.
    "build_app": _of(f"{_LAUNCHERS}.app", f"{_OPENAI}.api_server"),
    "init_app_state": _of(f"{_LAUNCHERS}.api_server.app_state", f"{_OPENAI}.api_server"),
    "make_arg_parser": _of(
        "vllm.entrypoints.common.cli_args", f"{_LAUNCHERS}.cli_args", f"{_OPENAI}.cli_args"
    ),
    "ToolParserManager": _of("vllm.tool_parsers", f"{_OPENAI}.tool_parsers.abstract_tool_parser"),
    "ReasoningParserManager": _of("vllm.reasoning"),
    "DeltaMessage": _of(
        "vllm.entrypoints.generate.base.protocol",
        f"{_OPENAI}.engine.protocol",
        f"{_OPENAI}.protocol",
    ),
    # What it takes.
    "SpeculativeConfig": _of("vllm.config"),
    "ModelRegistry": _of("vllm.model_executor.models"),
    "PREVIOUSLY_SUPPORTED_MODELS": _of(f"{_REGISTRY}:_PREVIOUSLY_SUPPORTED_MODELS"),
    "PLUGIN_MODELS": _of(f"{_REGISTRY}:_OOT_SUPPORTED_MODELS", instead=()),
    "QUANTIZATION_METHODS": _of("vllm.model_executor.layers.quantization"),
    "KV_CACHE_DTYPES": _of("vllm.config.cache", instead=()),  # 0.33
    "LOADERS": _of("vllm.model_executor.model_loader:_LOAD_FORMAT_TO_MODEL_LOADER"),
    # Media.
    "HTTPConnection": _of("vllm.connections"),
    "MediaConnector": _of("vllm.multimodal.media", "vllm.multimodal.utils"),
    "MEDIA_CONNECTOR_REGISTRY": _of("vllm.multimodal.media", "vllm.multimodal.utils"),  # 0.11.1
    "OpenCVVideoBackendMixin": _of(
        "vllm.multimodal.video_decoders.opencv", "vllm.multimodal.video", instead=None
    ),
    "ALLOWED_IMAGE_FORMATS": _of("vllm.multimodal.image", instead=None),  # 0.32
}
"""By what this package calls them. The name `*` is the module itself."""


def __getattr__(key: str) -> Any:
    """Import a name of the table; it is a member of this module from then on."""
    if key not in NAMES:
        raise AttributeError(key)
    globals()[key] = value = find(key)
    return value


def find(key: str) -> Any:
    entry, failed = NAMES[key], None
    for place in entry.places:
        module, _, name = place.partition(":")
        try:
            imported = import_module(module)
            return imported if name == "*" else getattr(imported, name or key)
        except Exception as error:  # noqa: BLE001  a module may raise anything for a name it had
            failed = failed or error
    if entry.instead is not ...:
        return entry.instead
    if (moved := _loaded(key)) is not None:
        return moved
    raise MissingNameError(f"vLLM's {key} cannot be imported: {failed}") from failed


def _loaded(key: str) -> Any:
    """Return a class or function of this name that a loaded module of vLLM defines."""
    for module in [name for name in sys.modules if name.startswith("vllm.")]:
        value = vars(sys.modules[module]).get(key)
        if getattr(value, "__module__", "") == module:
            return value
    return None
