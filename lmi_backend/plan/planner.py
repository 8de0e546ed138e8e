"""Decide how to run what the options require, on the devices that are there."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lmi_backend.engine_config import RequestLimits
from lmi_backend.errors import ConfigurationError, PlanError
from lmi_backend.options.classification import check_words
from lmi_backend.options.signature import signature_of
from lmi_backend.options.spec import CUSTOM
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import server as srv
from lmi_backend.options.table import trtllm, vllm
from lmi_backend.plan.arguments import engine_arguments, engine_config, explain_ports, passed_on
from lmi_backend.plan.capacity import Capacity
from lmi_backend.plan.engine_plan import Degrees, EnginePlan, Explanation, Launch
from lmi_backend.plan.hardware import busy_devices, describe
from lmi_backend.plan.memory_options import copies, utilization
from lmi_backend.plan.model_source import Sources, find_adapter_roots, find_sources
from lmi_backend.plan.ranks import executor, find_hosts, launcher_variables, make_parallel
from lmi_backend.plan.refusals import refuse_dense_copies, refuse_unsupported
from lmi_backend.plan.strategy import Strategy
from lmi_backend.plan.workers import (
    check_memory,
    cut_devices,
    load_in_parallel,
    loaded_bytes,
    scaling,
    usable_devices,
    with_spares,
)
from lmi_backend.printable import MIB
from lmi_backend.sizing.step import NEWEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Release


_SHARING: Final = (
    "accepted: fewer devices for one of them (maxWorkers, load_on_devices, "
    "option.tensor_parallel_degree), or smaller shares (option.gpu_memory_utilization)"
)


def make_plan(
    options: LmiOptions,
    environment: Mapping[str, str],
    hardware: Hardware,
    facts: ModelFacts | None,
    sources: Sources | None = None,
) -> EnginePlan:
    """Plan one model, with what others leave of the devices, or refuse it.

    Args:
        facts: None where its config.json cannot be read.
    """
    sources = sources or find_sources(options, environment)
    share = _device_share(options, hardware, sources)
    busy = busy_devices(hardware.devices, hardware.gpus, hardware.allocations, share)
    try:
        plan = _make(options, environment, replace(hardware, busy=busy), facts, sources)
    except ConfigurationError as error:
        if not busy:
            raise
        # What is wrong without them too is said as it is.
        _make(options, environment, hardware, facts, sources)
        held = describe(busy, hardware.gpus, hardware.allocations, share)
        raise PlanError(f"{error}; {held}; {_SHARING}") from error
    if not any(plan.parallel.device_groups):
        return plan
    reasons = [describe(busy, hardware.gpus, hardware.allocations, share)] if busy else []
    parallel = replace(plan.parallel, device_share=share)
    return replace(plan, parallel=parallel, reasons=(*plan.reasons, *reasons))


def _device_share(options: LmiOptions, hardware: Hardware, sources: Sources) -> float:
    is_custom = sources.custom is not None and sources.custom.replaces_engine
    if not is_custom and options.choice.spec.implementation.takes_memory:
        return utilization(options, _release(options, sources.python))
    needed = options[srv.GPU_REQUIRED_MEMORY] * MIB
    return min(1.0, needed / hardware.device_memory) if hardware.device_memory else 0.0


def _make(
    options: LmiOptions,
    environment: Mapping[str, str],
    hardware: Hardware,
    facts: ModelFacts | None,
    sources: Sources,
) -> EnginePlan:
    if sources.custom is not None and sources.custom.replaces_engine:
        allowed = _allowed(options, environment, hardware)
        return _handler_plan(options, environment, allowed, sources, visible=hardware.devices)
    notes = refuse_unsupported(options, facts, sources.python, sources.model)
    notes += [str(each) for each in options.classifications if each.status.word == "ignored"]
    report = Explanation(notes, [*options.choice.reasons, *_whose_code(options, sources)])
    passthrough, served = passed_on(options, sources.python, hardware, report)
    max_running = _max_running(options, report)
    launch = _launch(options, sources.python)
    visible, hardware = hardware.devices, _allowed(options, environment, hardware)
    around = {**environment, **launch.environment}
    release = _release(options, sources.python)
    capacity = Capacity(options, hardware, facts, around, max_running, release) if facts else None
    parts = copies(options)
    degrees = Strategy(options, hardware.share(parts), capacity, report).choose()
    size = degrees.size * parts
    parallel = make_parallel(options, environment, hardware, degrees, size, report)
    arguments = engine_arguments(options, degrees, max_running, report)
    arguments |= executor(options, environment, parallel.nodes, report)
    refuse_dense_copies(options, arguments, facts)
    has_code = sources.custom is not None
    report.notes.extend(check_words(options, arguments, sources.python, has_code=has_code))
    devices = cut_devices(options, hardware, size, report, visible=visible)
    parallel = replace(parallel, device_groups=devices)
    explain_ports(passthrough, parallel.workers, report)
    weights = facts.weights.total if facts else 0
    at_once = load_in_parallel(options, hardware, devices, weights, report)
    launch = replace(launch, parallel_loading=at_once)
    loaded = loaded_bytes(degrees.memory, parts, passthrough.keys(), parallel)
    launch = with_spares(launch, options, parallel, loaded, report, has_code=has_code)
    return EnginePlan(
        engine=options.choice.spec.implementation.key,
        config=engine_config(options, sources, arguments, passthrough, report, served=served),
        launch=launch,
        parallel=parallel,
        memory=degrees.memory,
        limits=_limits(options, max_running, parallel.workers, report),
        scaling=scaling(options, hardware, parallel.workers, report),
        log_requests=options[opt.LOG_REQUESTS],
        notes=tuple(report.notes),
        reasons=tuple(report.reasons),
        ignored=report.ignored,
    )


def _handler_plan(
    options: LmiOptions,
    environment: Mapping[str, str],
    hardware: Hardware,
    sources: Sources,
    *,
    visible: tuple[str, ...],
) -> EnginePlan:
    """Plan a model whose own handler does everything: workers, devices and limits."""
    custom = sources.custom
    report = Explanation()
    # The handler gets every option as it is written, so none is ignored.
    if custom is not None:
        report.reasons.append(f"no engine: {custom.handler} in {custom.file} answers the requests")
    tensor = options[opt.TENSOR_PARALLEL_DEGREE]
    degree = tensor if isinstance(tensor, int) else max(1, len(hardware.devices))
    degrees = Degrees(degree, 1)
    parallel = make_parallel(options, environment, hardware, degrees, degree, report)
    devices = cut_devices(options, hardware, degree, report, visible)
    limits = _limits(options, _max_running(options, report), len(devices), report)
    return EnginePlan(
        engine=CUSTOM,
        config=engine_config(options, sources, {}, {}, report),
        launch=_launch(options, sources.python),
        parallel=replace(parallel, device_groups=devices),
        limits=limits,
        scaling=scaling(options, hardware, len(devices), report),
        log_requests=options[opt.LOG_REQUESTS],
        notes=tuple(report.notes),
        reasons=tuple(report.reasons),
        ignored=report.ignored,
    )


def _limits(
    options: LmiOptions, max_running: int, workers: int, report: Explanation
) -> RequestLimits:
    timeout, threshold = options[opt.MIGRATION_TIMEOUT], options[srv.CONCURRENCY_THRESHOLD]
    named = srv.CONCURRENCY_THRESHOLD.name
    if workers == 1:
        threshold = 0
        if options.is_set(srv.CONCURRENCY_THRESHOLD):
            report.ignore(named, "there is one worker")
    elif threshold:
        report.reasons.append(
            "requests go to the worker that has their prompt cached, if it has little more to do: "
            f"fewer than {threshold} answers more than another ({named})"
        )
    return RequestLimits(
        max_running=max_running,
        queue_size=options[srv.JOB_QUEUE_SIZE],
        tenant_weights=options[srv.TENANT_WEIGHTS],
        tenant_from_user=options[srv.TENANT_FROM_USER],
        ttft_ms=options[srv.TTFT_MS],
        tpot_ms=options[srv.TPOT_MS],
        concurrency_threshold=threshold,
        request_timeout=options[opt.PREDICT_TIMEOUT],
        drain_seconds=options[srv.SHUTDOWN_TIMEOUT],
        max_message_size=options[opt.MAX_OUTPUT_SIZE],
        migration_timeout=None if timeout == "auto" else timeout,
        migration_limit=options[opt.MIGRATION_LIMIT],
        resumable=options[opt.RESUMABLE],
        resume_window=options[opt.RESUME_WINDOW],
        adapter_roots=find_adapter_roots(options),
    )


def _launch(options: LmiOptions, python: str) -> Launch:
    flush = options[opt.STREAM_FLUSH]
    return Launch(
        python=python,
        environment=_worker_environment(options),
        load_timeout=options[opt.MODEL_LOADING_TIMEOUT],
        hang_timeout=options[opt.HANG_TIMEOUT],
        restart_limit=options[srv.RETRY_THRESHOLD],
        parallel_loading=options[opt.PARALLEL_LOADING],
        stream_interval=options[opt.STREAM_INTERVAL],
        stream_flush=None if flush == "auto" else flush / 1000,
    )


def _whose_code(options: LmiOptions, sources: Sources) -> Iterator[str]:
    if sources.custom is not None:
        yield f"code of the model's folder is run: {sources.custom.file}"
    if options[opt.TRUST_REMOTE_CODE]:
        yield "code of the model's author is run: option.trust_remote_code"


def _max_running(options: LmiOptions, report: Explanation) -> int:
    given = [
        (option, options[option])
        for option in (opt.MAX_ROLLING_BATCH_SIZE, trtllm.MAX_SEQUENCES)
        if options.is_set(option)
    ]
    if len({value for _, value in given}) > 1:
        raise options.error(given[1][0], f"contradicts {given[0][0].name}={given[0][1]}")
    if given:
        return given[0][1]
    if options[srv.BATCH_SIZE] > 1:
        batch = options[srv.BATCH_SIZE]
        report.reasons.append(
            f"{batch} requests at once: batch_size; they are batched continuously"
        )
        return batch
    spec = options.choice.spec
    if spec.max_running:
        report.reasons.append(
            f"{spec.max_running} requests at once: LMI's default for {spec.title}"
        )
        return spec.max_running
    default = options[opt.MAX_ROLLING_BATCH_SIZE]
    if options[opt.ROLLING_BATCH] != spec.rolling_batch:
        report.reasons.append(
            f"{default} requests at once: no number is set; LMI has 32 where rolling_batch names "
            "no engine (option.max_rolling_batch_size)"
        )
    return default


def _release(options: LmiOptions, python: str) -> Release:
    """Return the release of vLLM that will run, the newest known where another engine does."""
    implementation = options.choice.spec.implementation
    signature = signature_of(options, python) if implementation.counts_memory_as_vllm else None
    match = re.match(r"(\d+)\.(\d+)(?:\.([1-9]\d*))?", signature.version) if signature else None
    return tuple(int(each) for each in match.groups() if each) if match else NEWEST


def _allowed(options: LmiOptions, environment: Mapping[str, str], hardware: Hardware) -> Hardware:
    check_memory(options, hardware)
    devices = usable_devices(options, hardware)
    if 0 < len(devices) < options[vllm.DATA_PARALLEL_SIZE]:
        problem = f"needs as many devices; {len(devices)} usable"
        raise options.error(vllm.DATA_PARALLEL_SIZE, problem)
    if 0 < len(devices) < (wanted := copies(options)):
        raise PlanError(
            "option.prefill_context_parallel_size, times the data parallel size, needs "
            f"{wanted} devices; {len(devices)} usable"
        )
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
        if not os.path.isfile(path):
            raise options.error(vllm.LMCACHE_FILE, f"is not a file (looked at {path})")
        environment["LMCACHE_CONFIG_FILE"] = str(path.resolve())
    return environment
