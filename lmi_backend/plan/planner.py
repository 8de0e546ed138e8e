"""Decide how to run what the options ask for, on the devices that are there."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lmi_backend.errors import OptionError
from lmi_backend.options.classification import classify_unknown
from lmi_backend.options.engine_spec import CUSTOM
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import server as srv
from lmi_backend.options.table import trtllm, vllm
from lmi_backend.plan.arguments import engine_arguments
from lmi_backend.plan.capacity import Capacity
from lmi_backend.plan.clients import client_fields
from lmi_backend.plan.custom import Custom, find_custom
from lmi_backend.plan.engine_plan import EnginePlan
from lmi_backend.plan.model_source import find_model
from lmi_backend.plan.ranks import executor, find_hosts, launcher_variables, rank_fields
from lmi_backend.plan.refusals import refuse_options
from lmi_backend.plan.strategy import Strategy
from lmi_backend.plan.workers import check_memory, cut_devices, usable_devices
from lmi_backend.structures import StructureBounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.model_facts import ModelFacts


def make_plan(
    options: LmiOptions,
    environment: Mapping[str, str],
    hardware: Hardware,
    facts: ModelFacts | None,
) -> EnginePlan:
    """Plan one model; `facts` is None where its config.json cannot be read.

    Raises:
        ConfigurationError: the options cannot be run, or not on this hardware.
    """
    ignored = (each for each in options.classifications if each.status.word == "ignored")
    notes, reasons = [str(each) for each in ignored], list(options.choice.reasons)
    refuse_options(options, facts)
    custom = find_custom(options)
    reasons += _whose_code(options, custom)
    if custom is not None and custom.replaces_engine:
        allowed = _allowed(options, environment, hardware)
        return _handler_plan(options, environment, allowed, custom)
    python = find_interpreter(options, environment)
    passthrough = _passthrough(options, python, notes)
    max_running = _max_running(options, reasons)
    added = _worker_environment(options)
    hardware = _allowed(options, environment, hardware)
    around = {**environment, **added}
    capacity = Capacity(options, hardware, facts, around, max_running) if facts else None
    copies = options[vllm.DATA_PARALLEL_SIZE]
    degrees = Strategy(options, hardware.share(copies), capacity, reasons, notes).choose()
    size = degrees.size * copies
    ranks = rank_fields(options, environment, hardware, size, notes)
    arguments = engine_arguments(options, degrees, max_running, reasons, notes)
    arguments |= executor(options, ranks["nodes"], reasons)
    return EnginePlan(
        engine=options.choice.spec.implementation.name,
        model=find_model(options),
        python=python,
        tensor_parallel_degree=degrees.tensor,
        pipeline_parallel_degree=degrees.pipeline,
        **ranks,
        device_groups=cut_devices(options, hardware, size, reasons, notes),
        memory=degrees.memory,
        max_running=max_running,
        **_limits(options),
        **client_fields(options, custom, reasons),
        engine_arguments=arguments,
        passthrough=passthrough,
        environment=added,
        notes=tuple(notes),
        reasons=tuple(reasons),
    )


def _limits(options: LmiOptions) -> dict[str, Any]:
    flush = options[opt.STREAM_FLUSH]
    return {
        "queue_size": options[srv.JOB_QUEUE_SIZE],
        "tenant_weights": options[srv.TENANT_WEIGHTS],
        "load_timeout": options[opt.MODEL_LOADING_TIMEOUT],
        "request_timeout": options[opt.PREDICT_TIMEOUT],
        "hang_timeout": options[opt.HANG_TIMEOUT],
        "restart_limit": options[srv.RETRY_THRESHOLD],
        "parallel_loading": options[opt.PARALLEL_LOADING],
        "log_requests": options[opt.LOG_REQUESTS],
        "max_message_size": options[opt.MAX_OUTPUT_SIZE],
        "structure_bounds": StructureBounds(
            size=options[opt.MAX_STRUCTURE_SIZE],
            choices=options[opt.MAX_STRUCTURE_CHOICES],
            depth=options[opt.MAX_STRUCTURE_DEPTH],
            repeats=options[opt.MAX_STRUCTURE_REPEATS],
        ),
        "stream_interval": options[opt.STREAM_INTERVAL],
        "stream_flush": None if flush == "auto" else flush / 1000,
    }


def _whose_code(options: LmiOptions, custom: Custom | None) -> list[str]:
    """Say which code is run that is neither ours nor the engine's."""
    said = [f"code of the model's folder is run: {custom.file}"] if custom is not None else []
    if options[opt.TRUST_REMOTE_CODE]:
        said.append("code of the model's author is run: option.trust_remote_code")
    return said


def _handler_plan(
    options: LmiOptions, environment: Mapping[str, str], hardware: Hardware, custom: Custom
) -> EnginePlan:
    """Plan a model whose own handler does everything: workers, devices and limits."""
    # The handler gets every option as it is written, so none is ignored.
    notes: list[str] = []
    reasons: list[str] = []
    asked = options[opt.TENSOR_PARALLEL_DEGREE]
    degree = asked if isinstance(asked, int) else max(1, len(hardware.devices))
    reasons.append(f"no engine: {custom.handler} in {custom.file} answers the requests")
    return EnginePlan(
        engine=CUSTOM,
        model=find_model(options),
        python=find_interpreter(options, environment),
        tensor_parallel_degree=degree,
        **rank_fields(options, environment, hardware, degree, notes),
        device_groups=cut_devices(options, hardware, degree, reasons, notes),
        max_running=_max_running(options, reasons),
        **_limits(options),
        **client_fields(options, custom, reasons),
        environment=_worker_environment(options),
        notes=tuple(notes),
        reasons=tuple(reasons),
    )


def _passthrough(options: LmiOptions, python: str, notes: list[str]) -> dict[str, str]:
    """Return what is handed to the engine as text; it has, or may have, such arguments."""
    passed = {}
    for name, status in classify_unknown(options, python).items():
        setting = options.passthrough[name]
        if status.word == "refused":
            raise OptionError(
                status.detail, option=setting.name, value=setting.shown, origin=setting.origin
            )
        if status.word == "passed":
            passed[name] = setting.value
        else:
            notes.append(f"{setting} is ignored: {status.detail}")
    return passed


def _max_running(options: LmiOptions, reasons: list[str]) -> int:
    """Return how many requests one worker generates for at once."""
    asked = [
        (option, options[option])
        for option in (opt.MAX_ROLLING_BATCH_SIZE, trtllm.MAX_SEQUENCES)
        if options.is_set(option)
    ]
    if len({value for _, value in asked}) > 1:
        problem = f"contradicts {asked[0][0].name}={asked[0][1]}"
        raise options.error(asked[1][0], problem)
    if asked:
        return asked[0][1]
    if options[srv.BATCH_SIZE] > 1:
        batch = options[srv.BATCH_SIZE]
        reasons.append(f"{batch} requests at once: batch_size; they are batched continuously")
        return batch
    spec = options.choice.spec
    if spec.max_running:
        reasons.append(f"{spec.max_running} requests at once: LMI's default for {spec.title}")
        return spec.max_running
    return opt.MAX_ROLLING_BATCH_SIZE.default


def find_interpreter(options: LmiOptions, environment: Mapping[str, str]) -> str:
    """Return the interpreter of the workers: the one asked for, else this one.

    Raises:
        OptionError: it is no executable file.
    """
    asked = options[opt.PYTHON_EXECUTABLE]
    path = shutil.which(asked, path=environment.get("PATH")) if asked else sys.executable
    if path is None:
        raise options.error(opt.PYTHON_EXECUTABLE, "is not an executable file")
    return path


def _allowed(options: LmiOptions, environment: Mapping[str, str], hardware: Hardware) -> Hardware:
    """Return the part of the hardware that the options allow."""
    check_memory(options, hardware)
    devices = usable_devices(options, hardware.devices)
    if 0 < len(devices) < options[vllm.DATA_PARALLEL_SIZE]:
        problem = f"needs as many devices; {len(devices)} usable"
        raise options.error(vllm.DATA_PARALLEL_SIZE, problem)
    return replace(
        hardware,
        devices=devices,
        nodes=max(hardware.nodes, options[opt.CLUSTER_SIZE], len(find_hosts(options, environment))),
    )


def _worker_environment(options: LmiOptions) -> dict[str, str]:
    given: Mapping[str, str] = options[opt.ENV]
    environment = {**given, **launcher_variables(options)}
    file = options[vllm.LMCACHE_FILE]
    if file:
        path = options.folder / file
        if not path.is_file():
            raise options.error(vllm.LMCACHE_FILE, f"is not a file (looked at {path})")
        environment["LMCACHE_CONFIG_FILE"] = str(path.resolve())
    return environment
