"""Every name of vLLM that this package imports: `names.AsyncLLM` is vLLM's, wherever it is.

vLLM moves its modules between releases. A name is looked for where it was last seen, and then by
its definition in vLLM's source, so a move needs no change here. Each is imported when it is first
used: a name that is gone stops only what needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from lmi_backend.engines.vllm.inside.source import installed


class MissingNameError(ImportError):
    """This vLLM lacks a name."""


_NO_SHARE: Final = 7.0
"""Of all tokens, which no release takes as `top_p`."""
_WITH_BASE: Final = 2
"""Classes that an error is at least of: its own, and the base of all."""


class NeverRaised(Exception):
    """Stands in for an exception that this vLLM does not have."""


def shown_by_vllm(key: str) -> type[Exception]:
    """Return the class of the errors by which vLLM refuses a value; it may have any name.

    Args:
        key: `VLLMClientError` for the one that those of all refusals have in common.
    """
    try:
        _find("SamplingParams", NAMES["SamplingParams"])(top_p=_NO_SHARE)
    except Exception as error:  # noqa: BLE001  it is what is looked for
        kinds = [each for each in type(error).__mro__ if each.__module__.startswith("vllm.")]
        # The last is the base of all errors of vLLM's, its own faults among them.
        has_base = key == "VLLMClientError" and len(kinds) > _WITH_BASE
        return kinds[1 if has_base else 0] if kinds else ValueError
    return ValueError


@dataclass(frozen=True)
class Name:
    """One name."""

    module: str
    """That it was last seen in."""
    name: str = ""
    """In that module, where it differs."""
    older: str = ""
    """Name that older releases have."""
    is_common: bool = False
    """Whether other modules have other things of this name: it is looked for in its own alone."""
    instead: Any = ...
    """What serves where there is none, or a function that finds it; an ellipsis if nothing does."""
    defines: str = ""
    """What a module (`*`) defines: it is found by that where it has moved."""
    since: str = ""
    """A release that has it, where the releases before that lack it and have no need of it."""


NAMES: Final = {
    "vllm_version": Name("vllm", "__version__"),
    # The engine.
    "AsyncEngineArgs": Name("vllm.engine.arg_utils"),
    "AsyncLLM": Name("vllm.v1.engine.async_llm"),
    "UsageContext": Name("vllm.usage.usage_lib"),
    "FlexibleArgumentParser": Name("vllm.utils.argparse_utils"),  # 0.13: moved
    "EngineDeadError": Name("vllm.v1.engine.exceptions", instead=NeverRaised),
    "EngineGenerateError": Name("vllm.v1.engine.exceptions", instead=NeverRaised),
    # ValueError before some release between 0.20 and 0.32
    "VLLMClientError": Name("vllm.exceptions", instead=shown_by_vllm),
    "VLLMValidationError": Name("vllm.exceptions", instead=shown_by_vllm),
    # Requests.
    "SamplingParams": Name("vllm.sampling_params"),
    "RequestOutputKind": Name("vllm.sampling_params"),
    "StructuredOutputsParams": Name("vllm.sampling_params", older="GuidedDecodingParams"),  # 0.12
    "tokens_input": Name("vllm.inputs", older="token_inputs", instead=None),  # 0.20: renamed
    "LoRARequest": Name("vllm.lora.request"),
    # Structured outputs.
    "get_structured_output_key": Name("vllm.v1.structured_output.request"),
    "has_guidance_unsupported_json_features": Name("vllm.v1.structured_output.backend_guidance"),
    "GuidanceBackend": Name("vllm.v1.structured_output.backend_guidance", instead=None),
    "validate_guidance_grammar": Name("vllm.v1.structured_output.backend_guidance"),
    "validate_xgrammar_grammar": Name("vllm.v1.structured_output.backend_xgrammar"),
    # Outputs.
    "RequestOutput": Name("vllm.outputs"),
    "CompletionOutput": Name("vllm.outputs"),
    "EngineCoreOutput": Name("vllm.v1.engine"),
    "EngineCoreRequest": Name("vllm.v1.engine"),
    "LogprobsLists": Name("vllm.v1.outputs"),
    "OutputProcessor": Name("vllm.v1.engine.output_processor"),
    "RequestOutputCollector": Name("vllm.v1.engine.output_processor"),
    "RequestState": Name("vllm.v1.engine.output_processor"),
    "LogprobsProcessor": Name("vllm.v1.engine.logprobs"),
    "logprobs": Name("vllm.v1.engine.logprobs", "*", defines="LogprobsProcessor"),
    "IncrementalDetokenizer": Name("vllm.v1.engine.detokenizer"),
    "AsyncMPClient": Name("vllm.v1.engine.core_client"),
    "StatLoggerBase": Name("vllm.v1.metrics.loggers"),
    "AdapterLogitsProcessor": Name("vllm.v1.sample.logits_processor"),
    # Between 0.20 and 0.32: its second model runner takes no other.
    "LogitsProcessor": Name(
        "vllm.v1.worker.gpu.sample.logits_processor", is_common=True, instead=None
    ),
    "envs": Name("vllm.envs", "*", defines="environment_variables"),
    # A core on a CPU.
    "current_platform": Name("vllm.platforms"),
    "shm_broadcast": Name(
        "vllm.distributed.device_communicators.shm_broadcast", "*", defines="ShmRingBuffer"
    ),
    "cpu_communicator": Name(
        "vllm.distributed.device_communicators.cpu_communicator", "*", defines="CpuCommunicator"
    ),
    "UniProcExecutor": Name("vllm.v1.executor.uniproc_executor"),
    "OMPProcessManager": Name("vllm.utils.ompmultiprocessing"),  # 0.20
    "PunicaWrapperBase": Name("vllm.lora.punica_wrapper.punica_base"),
    "PunicaWrapperCPU": Name("vllm.lora.punica_wrapper.punica_cpu"),
    # Its second runner's classes have the same names.
    "GPUModelRunner": Name("vllm.v1.worker.gpu_model_runner", is_common=True),
    "InputBatch": Name("vllm.v1.worker.gpu_input_batch", is_common=True),
    "async_tensor_h2d": Name("vllm.utils.torch_utils", instead=None),
    "ModelConfig": Name("vllm.config.model"),
    "ParallelConfig": Name("vllm.config.parallel"),
    # Ranks.
    "InprocClient": Name("vllm.v1.engine.core_client"),
    "EngineCore": Name("vllm.v1.engine.core"),
    "SchedulerInterface": Name("vllm.v1.core.sched.interface"),
    "EngineCoreClient": Name("vllm.v1.engine.core_client"),
    "EngineCoreOutputs": Name("vllm.v1.engine"),
    "Executor": Name("vllm.v1.executor.abstract"),
    "FinishReason": Name("vllm.v1.engine"),
    "MsgpackDecoder": Name("vllm.v1.serial_utils"),
    "MsgpackEncoder": Name("vllm.v1.serial_utils"),
    "run_headless": Name("vllm.entrypoints.cli.serve"),  # 0.12
    # The server.
    "build_app": Name("vllm.entrypoints.launchers.app"),  # 0.30: moved
    "init_app_state": Name("vllm.entrypoints.launchers.api_server.app_state"),  # 0.30: moved
    "make_arg_parser": Name("vllm.entrypoints.launchers.cli_args"),
    "ToolParserManager": Name("vllm.tool_parsers"),  # 0.13: moved
    "ReasoningParserManager": Name("vllm.reasoning"),
    "DeltaMessage": Name("vllm.entrypoints.generate.base.protocol"),
    "AnthropicServingMessages": Name("vllm.entrypoints.anthropic.serving"),
    "OpenAIServingChat": Name("vllm.entrypoints.openai.chat_completion.serving"),
    "OpenAIServingModels": Name("vllm.entrypoints.openai.models.serving"),
    "LoadLoRAAdapterRequest": Name("vllm.entrypoints.serve.lora.protocol"),
    "UnloadLoRAAdapterRequest": Name("vllm.entrypoints.serve.lora.protocol"),
    # 0.15 or before; older releases look for nothing in an error.
    "sanitize_message": Name("vllm.entrypoints.serve.exception_handling.utils", since="0.16"),
    # Media.
    "HTTPConnection": Name("vllm.connections"),
    "MediaConnector": Name("vllm.multimodal.media"),  # moved between 0.13 and 0.20
    "OpenCVVideoBackendMixin": Name("vllm.multimodal.video_decoders.opencv", instead=None),
    "ALLOWED_IMAGE_FORMATS": Name("vllm.multimodal.image", instead=None),  # 0.32
}
"""By what this package calls them. The name `*` is the module itself."""


def __getattr__(key: str) -> Any:
    """Import a name of the table; it is a member of this module from then on.

    Raises:
        MissingNameError: this vLLM lacks it.
    """
    if key not in NAMES:
        raise AttributeError(key)
    globals()[key] = value = _find(key, NAMES[key])
    return value


def homes(key: str) -> list[tuple[str, str]]:
    """Return the modules and names under which a name of the table can be imported here."""
    entry = NAMES[key]
    place = installed().place(entry.module)
    if entry.name == "*":
        is_there = installed().has_module(place)
        module = place if is_there or not entry.defines else installed().home(entry.defines, place)
        return [(module, "*")] if module is not None and installed().has_module(module) else []
    spellings = [each for each in (entry.name or key, entry.older) if each]
    found = [(installed().home(each, place), each) for each in spellings]
    return [
        (module, name)
        for module, name in found
        if module is not None and (module == place or not entry.is_common)
    ]


def _find(key: str, entry: Name) -> Any:
    failed: Exception | None = None
    # A module may raise anything for a name that it had.
    try:
        return _import(entry.module, entry.name or key)
    except Exception as error:  # noqa: BLE001
        failed = error
    for module, name in homes(key):
        try:
            return _import(module, name)
        except Exception as error:  # noqa: BLE001
            failed = error
    if entry.instead is shown_by_vllm:
        return shown_by_vllm(key)
    if entry.instead is not ...:
        return entry.instead
    name = entry.name or key
    raise MissingNameError(f"vLLM's {name} cannot be imported: {failed}") from failed


def _import(module: str, name: str) -> Any:
    found = import_module(module)
    return found if name == "*" else getattr(found, name)
