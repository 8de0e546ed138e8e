"""Decide how to run what the options ask for, on the devices that are visible."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

from lmi_backend.errors import PlanError
from lmi_backend.options.table import OPTIONS, vllm
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import server as srv
from lmi_backend.plan.engine_plan import Dialect, EnginePlan
from lmi_backend.plan.hardware import visible_devices
from lmi_backend.plan.model_source import find_adapters, find_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options import LmiOptions

_ENGINE_BY_ROLLING_BATCH = {
    "auto": "vllm",
    "disable": "vllm",
    "vllm": "vllm",
    "lmi-dist": "vllm",
    "echo": "echo",
}
_LEGACY = frozenset({"vllm", "lmi-dist", "trtllm", "scheduler", "echo"})
_HANDLERS = frozenset({"djl_python.huggingface", "djl_python.lmi_vllm.vllm_async_service"})
_GENERATION = frozenset({"auto", "generate", "text-generation"})


def make_plan(options: LmiOptions, environment: Mapping[str, str]) -> EnginePlan:
    """Plan one model.

    Raises:
        ConfigurationError: the options cannot be run, or not on this machine.
    """
    reasons = list(options.notes)
    _refuse_what_is_not_served(options)
    engine = _engine(options, reasons)
    tensor, pipeline, groups = _devices(options, environment, reasons)
    return EnginePlan(
        engine=engine,
        model=find_model(options, engine),
        python=_interpreter(options, environment, reasons),
        tensor_parallel_degree=tensor,
        pipeline_parallel_degree=pipeline,
        device_groups=groups,
        max_running=options[opt.MAX_ROLLING_BATCH_SIZE],
        queue_size=options[srv.JOB_QUEUE_SIZE],
        load_timeout=options[opt.MODEL_LOADING_TIMEOUT],
        request_timeout=options[opt.PREDICT_TIMEOUT],
        restart_limit=options[srv.RETRY_THRESHOLD],
        parallel_loading=options[opt.PARALLEL_LOADING],
        max_message_size=options[opt.MAX_OUTPUT_SIZE],
        dialect=_dialect(options, reasons),
        engine_arguments=_engine_arguments(options, engine, tensor, pipeline),
        passthrough={name: setting.value for name, setting in options.passthrough.items()},
        adapters=find_adapters(options),
        environment=options[opt.ENV],
        reasons=tuple(reasons),
    )


def _refuse_what_is_not_served(options: LmiOptions) -> None:
    if options[opt.ENGINE] == "MPI" or options[opt.MPI_MODE]:
        option = opt.MPI_MODE if options[opt.MPI_MODE] else opt.ENGINE
        raise options.error(option, "asks for MPI ranks, which are not served yet; use Python mode")
    if options[opt.ENGINE] == "DeepSpeed":
        raise options.error(opt.ENGINE, "is not served yet; use Python")
    if options[opt.TASK] not in _GENERATION:
        raise options.error(opt.TASK, "is not served yet; use text-generation")
    handler = options[opt.ENTRY_POINT]
    if handler and handler not in _HANDLERS:
        known = ", ".join(sorted(_HANDLERS))
        raise options.error(opt.ENTRY_POINT, f"is not served; the built-in handlers are {known}")
    if (custom := options.folder / "model.py").is_file():
        message = f"{custom}: custom handlers are not served; remove it to use the engine directly"
        raise PlanError(message)


def _engine(options: LmiOptions, reasons: list[str]) -> str:
    asked = options[opt.ROLLING_BATCH]
    engine = _ENGINE_BY_ROLLING_BATCH.get(asked)
    if engine is None:
        served = ", ".join(sorted(_ENGINE_BY_ROLLING_BATCH))
        raise options.error(opt.ROLLING_BATCH, f"names an engine not served yet; served: {served}")
    if asked == "lmi-dist":
        reasons.append("engine vllm: LMI itself runs rolling_batch=lmi-dist on vLLM since 0.33")
    else:
        reasons.append(f"engine {engine}: rolling_batch is {asked}")
    return engine


def _devices(
    options: LmiOptions, environment: Mapping[str, str], reasons: list[str]
) -> tuple[int, int, tuple[tuple[str, ...], ...]]:
    """Choose the parallel degrees, and cut the devices into one group a worker."""
    if 0 < options[srv.MAX_WORKERS] < options[srv.MIN_WORKERS]:
        problem = f"is more than maxWorkers, {options[srv.MAX_WORKERS]}"
        raise options.error(srv.MIN_WORKERS, problem)
    devices = _allowed_devices(options, visible_devices(environment))
    pipeline = options[opt.PIPELINE_PARALLEL_DEGREE]
    asked = options[opt.TENSOR_PARALLEL_DEGREE]
    tensor = max(1, len(devices) // pipeline) if asked == "max" else asked
    if not devices:
        reasons.append(f"tensor parallel degree {tensor}: no device is visible, {asked} was asked")
        wanted = options[srv.MIN_WORKERS] or 1
        return tensor, pipeline, ((),) * wanted
    size = tensor * pipeline
    if size > len(devices):
        is_tensor = options.is_set(opt.TENSOR_PARALLEL_DEGREE) and tensor > 1
        option = opt.TENSOR_PARALLEL_DEGREE if is_tensor else opt.PIPELINE_PARALLEL_DEGREE
        problem = f"needs {size} devices ({tensor} x {pipeline}); {len(devices)} visible"
        raise options.error(option, problem)
    copies = min(len(devices) // size, options[srv.MAX_WORKERS] or len(devices))
    if options[vllm.ENABLE_LORA] and copies > 1 and not options.is_set(srv.MIN_WORKERS):
        copies = 1
        reasons.append("1 worker: LMI serves LoRA adapters from one worker")
    if options[srv.MIN_WORKERS] > copies:
        problem = f"workers of {size} devices do not fit on {len(devices)} devices"
        raise options.error(srv.MIN_WORKERS, problem)
    reasons.append(f"{copies} worker(s) of {size} device(s): {len(devices)} visible")
    groups = tuple(tuple(devices[i * size : (i + 1) * size]) for i in range(copies))
    return tensor, pipeline, groups


def _allowed_devices(options: LmiOptions, visible: list[str]) -> list[str]:
    text = options[srv.LOAD_ON_DEVICES]
    if text == "*":
        return visible
    if text == "-1":
        return []
    names = [item.strip().removeprefix("gpu") for item in text.split(";")]
    indices = [int(name) for name in names if name.isdigit() and int(name) < len(visible)]
    if len(set(indices)) < len(names):
        problem = f"names a device twice or one that is not visible; visible: {len(visible)}"
        raise options.error(srv.LOAD_ON_DEVICES, problem)
    return [visible[index] for index in indices]


def _interpreter(options: LmiOptions, environment: Mapping[str, str], reasons: list[str]) -> str:
    asked = options[opt.PYTHON_EXECUTABLE]
    if not asked:
        reasons.append(f"interpreter {sys.executable}: the server's own")
        return sys.executable
    path = shutil.which(asked, path=environment.get("PATH"))
    if path is None:
        raise options.error(opt.PYTHON_EXECUTABLE, "is not an executable file")
    return path


def _dialect(options: LmiOptions, reasons: list[str]) -> Dialect:
    asked = options[opt.LMI_DIALECT]
    if asked != "auto":
        return "legacy" if asked == "legacy" else "async"
    is_legacy = (
        options[opt.ROLLING_BATCH] in _LEGACY
        or options.is_set(opt.OUTPUT_FORMATTER)
        or options[opt.TGI_COMPAT]
    )
    dialect: Dialect = "legacy" if is_legacy else "async"
    reasons.append(f"LMI dialect {dialect}: rolling_batch is {options[opt.ROLLING_BATCH]}")
    return dialect


def _engine_arguments(
    options: LmiOptions, engine: str, tensor: int, pipeline: int
) -> dict[str, Any]:
    arguments = {
        option.engine_args[engine]: options[option]
        for option in OPTIONS
        if engine in option.engine_args and options.is_set(option)
    }
    if engine == "vllm":
        arguments |= {
            "tensor_parallel_size": tensor,
            "pipeline_parallel_size": pipeline,
            "max_num_seqs": options[opt.MAX_ROLLING_BATCH_SIZE],
        }
        if options[vllm.ENABLE_LORA]:
            arguments["max_loras"] = options[vllm.MAX_LORAS]
    return arguments
