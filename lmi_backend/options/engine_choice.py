"""Which engine the options ask for. It decides what every other option means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lmi_backend.errors import OptionError
from lmi_backend.options.option import adapter_of
from lmi_backend.options.table import common as opt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options.resolve import LmiOptions

Mode = Literal["python", "mpi"]

FEATURES = "SERVING_FEATURES"
"""LMI's images say in this variable which engine they hold."""

_BY_ROLLING_BATCH = {
    "vllm": "vllm",
    "lmi-dist": "lmi-dist",
    "trtllm": "trtllm",
    "scheduler": "transformers",
    "tnx": "neuronx",
    "deepspeed": "deepspeed",
    "echo": "echo",
}
_BY_HANDLER = {
    "djl_python.lmi_vllm.vllm_async_service": "vllm",
    "djl_python.lmi_trtllm.trtllm_async_service": "trtllm",
    "djl_python.tensorrt_llm": "trtllm",
    "djl_python.deepspeed": "deepspeed",
    "djl_python.transformers_neuronx": "neuronx",
}
_ELSEWHERE = {
    "lmi-dist": "LMI-Dist was vLLM started by MPI",
    "deepspeed": "LMI has retired DeepSpeed; Transformers splits a model between MPI ranks itself",
}
"""Why an engine runs on another adapter."""
_ANY_ENGINE = "djl_python.huggingface"
"""LMI's handler that runs whichever engine rolling_batch names."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine, how its processes are started, and why."""

    engine: str
    mode: Mode
    reasons: tuple[str, ...]


def choose_engine(options: LmiOptions, environment: Mapping[str, str]) -> EngineChoice:
    """Choose from engine, mpi_mode, rolling_batch, entryPoint and SERVING_FEATURES.

    Raises:
        OptionError: they contradict each other, or name a handler that is not served.
    """
    engine, why = _engine(options, environment)
    mode, how = _mode(options, engine)
    reasons = [f"engine {engine}: {why}", f"{mode} mode: {how}"]
    if engine in _ELSEWHERE:
        reasons.insert(1, f"it runs on {adapter_of(engine)}: {_ELSEWHERE[engine]}")
    return EngineChoice(engine, mode, tuple(reasons))


def _engine(options: LmiOptions, environment: Mapping[str, str]) -> tuple[str, str]:
    asked = options[opt.ROLLING_BATCH]
    engine = _BY_ROLLING_BATCH.get(asked, "")
    handler = options[opt.ENTRY_POINT]
    by_handler = _by_handler(options, handler)
    if engine and by_handler and engine != by_handler:
        problem = f"runs {by_handler}, but rolling_batch is {asked}"
        raise options.error(opt.ENTRY_POINT, problem)
    if engine:
        return engine, f"rolling_batch is {asked}"
    if by_handler:
        return by_handler, f"entryPoint is {handler}"
    if options[opt.ENGINE] == "DeepSpeed":
        return "deepspeed", "engine is DeepSpeed"
    is_async = options.is_set(opt.ASYNC_MODE) and options[opt.ASYNC_MODE]
    if asked == "disable" and not is_async:
        return "transformers", "rolling_batch is disable, which is Hugging Face Accelerate in LMI"
    features = {word.strip() for word in environment.get(FEATURES, "").split(",")}
    if "trtllm" in features and "vllm" not in features:
        return "trtllm", f"{FEATURES} is {environment[FEATURES]}"
    return "vllm", "LMI's default; rolling_batch and entryPoint name no other"


def _by_handler(options: LmiOptions, handler: str) -> str:
    if handler in ("", _ANY_ENGINE) or handler.endswith(".py"):
        return ""
    if handler not in _BY_HANDLER:
        known = ", ".join(sorted([_ANY_ENGINE, *_BY_HANDLER]))
        raise options.error(
            opt.ENTRY_POINT, f"is no handler; accepted: a .py file beside the properties, {known}"
        )
    return _BY_HANDLER[handler]


def _mode(options: LmiOptions, engine: str) -> tuple[Mode, str]:
    if engine == "neuronx":
        return "python", "one process drives all Neuron cores"
    if options[opt.ENGINE] == "MPI":
        if options.is_set(opt.MPI_MODE) and not options[opt.MPI_MODE]:
            raise _contradiction(options)
        return "mpi", "engine is MPI"
    if options.is_set(opt.MPI_MODE):
        word = str(options[opt.MPI_MODE]).lower()
        return ("mpi" if options[opt.MPI_MODE] else "python"), f"mpi_mode is {word}"
    if engine == "deepspeed":
        return "mpi", "DeepSpeed shares a model between MPI ranks"
    asked = options[opt.ROLLING_BATCH]
    if asked in ("trtllm", "lmi-dist"):
        return "mpi", f"LMI's default for rolling_batch={asked}"
    return "python", "nothing asks for MPI"


def _contradiction(options: LmiOptions) -> OptionError:
    engine = options.settings[opt.ENGINE.name]
    return options.error(
        opt.MPI_MODE, f"contradicts {engine.name}={engine.value} ({engine.origin})"
    )
