"""Start a model that has workers of its own."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.loading import LoadingFile
from lmi_backend.endpoint.server import Endpoint
from lmi_backend.endpoint.state import RECENT, StateView
from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.errors import OptionError
from lmi_backend.fetch.weights import fetch_weights
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.options import load_options
from lmi_backend.options.spec import CUSTOM
from lmi_backend.plan import plan_model
from lmi_backend.plan.engine_plan import without_secrets
from lmi_backend.plan.hardware import detect_hardware
from lmi_backend.plan.multi_model import Reservations
from lmi_backend.pool.pool import Pool
from lmi_backend.pool.survivors import end_left_behind, memory_left_behind
from lmi_backend.redaction import Redactor
from lmi_backend.repository.files import Record
from lmi_backend.resume.resumption import longest_wait
from lmi_backend.serving.admission import Limits
from lmi_backend.serving.identity import identify, model_digest
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.service import Service, renew_worker
from lmi_backend.serving.stats import RequestStats
from lmi_backend.triton.tracing import tracer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmi_backend.fetch.weights import Download
    from lmi_backend.ipc.engine import Capabilities
    from lmi_backend.options import LmiOptions
    from lmi_backend.plan import EnginePlan
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.plan.multi_model import Reservation
    from lmi_backend.serving.request_state import Sink

_log = logging.getLogger(__name__)

_LOAD_FORMATS: Final = ("auto", "safetensors")
"""With which an engine reads files of the Hub's usual names."""
_TELL_SECONDS: Final = 10.0
_SERVER_SECONDS: Final = 15.0
"""What a server takes to start again, without its models' workers."""


@dataclass
class WorkersModel:
    """A model with workers of its own, and an endpoint through which others share them."""

    service: Service
    endpoint: Endpoint
    devices: Reservation
    pool: Pool
    drain_seconds: int
    """Time that the requests of an endpoint's clients have to end when the model is unloaded."""

    def context(self) -> Context:
        return self.endpoint.context

    def change_adapter(self, body: Mapping[str, object], sink: Sink) -> None:
        self.endpoint.lora_manager.take(body, sink)

    def close(self) -> None:
        # First: Triton kills a stub that takes long.
        self.pool.end_with_stub()
        # Triton has waited for its own requests, and knows nothing of the endpoint's.
        self.service.drain(self.drain_seconds)
        self.endpoint.close()
        self.service.close()
        self.devices.close()


def start_workers(
    args: Mapping[str, str],
    on_line: Callable[[str, str], None],
    on_secrets: Callable[[Iterable[tuple[str, str]]], None],
) -> WorkersModel:
    """Plan a model, start its workers and open its endpoint.

    Args:
        args: those of Triton's `initialize`.
        on_line: gets a worker's name and each line it prints.
        on_secrets: gets names and values of what the log must not show, once they are known.

    Raises:
        LmiError: an option is wrong, or the workers cannot be started.
    """
    folder = Path(args["model_repository"])
    name = args["model_name"]
    record = Record.read(folder)
    base = Path(record.model_dir) if record and record.model_dir else None
    options = load_options(folder, os.environ, base=base)
    on_secrets(options.secrets())
    loading = LoadingFile(name)
    try:
        plan, devices = _planned(options, name, loading)
    except BaseException:
        end_left_behind(name)
        loading.close()
        raise
    try:
        _download(plan, name, loading)

        def hear(worker: str, line: str) -> None:
            loading.hear(line)
            on_line(worker, line)

        with devices.loading(lambda: _log.info("%s: waits while another model loads", name)):
            return _start(plan, name, hear, devices)
    except BaseException as error:
        end_left_behind(name)
        devices.close()
        if isinstance(error, OptionError):
            raise options.locate(error) from error
        raise
    finally:
        loading.close()


def _download(plan: EnginePlan, name: str, loading: LoadingFile) -> None:
    """Download what the engine would download in the time that its load may take."""
    arguments = plan.config.arguments
    is_usual = arguments.get("load_format", "auto") in _LOAD_FORMATS
    if plan.engine == CUSTOM or not is_usual or arguments.get("download_dir"):
        return
    last_report = 0.0

    def tell(download: Download) -> None:
        nonlocal last_report
        loading.note(download)
        if time.monotonic() - last_report > _TELL_SECONDS:
            last_report = time.monotonic()
            _log.info("%s: %s", name, download)

    revision = str(arguments.get("revision") or "")
    environment = {**os.environ, **plan.launch.environment}
    why_not = fetch_weights(plan.launch.python, plan.config.model, revision, environment, tell)
    loading.note(None)
    if why_not:
        _log.info("%s: the engine downloads its weights itself: %s", name, why_not)


def _planned(
    options: LmiOptions, name: str, loading: LoadingFile
) -> tuple[EnginePlan, Reservation]:
    """Plan a model with what others leave of the devices, and reserve what it gets."""
    redact = Redactor(os.environ, options.secrets())

    def say(text: str) -> None:
        _log.info("%s: %s", name, text)
        # Others show it as it is.
        loading.say(redact(text))

    def plan(hardware: Hardware) -> EnginePlan:
        return plan_model(options, os.environ, hardware=hardware, reach="model", say=say)

    # Every stub is a child of tritonserver.
    server = os.environ.get(RUN_DIR_VARIABLE) or str(os.getppid())
    hardware = detect_hardware(os.environ)
    if hardware.host_memory:
        # A worker that is left is adopted, or killed before another is launched.
        left = memory_left_behind(name)
        hardware = replace(hardware, host_memory=hardware.host_memory + left)
    made, devices = Reservations(server).plan(name, hardware, plan)
    loading.say("")
    for note in made.notes:
        _log.warning("%s: %s", name, note)
    for reason in made.reasons:
        _log.info("%s: %s", name, reason)
    return made, devices


def _start(
    plan: EnginePlan,
    name: str,
    on_line: Callable[[str, str], None],
    devices: Reservation,
) -> WorkersModel:
    pool = Pool(plan, name, on_line)
    config, adapters, roots = plan.config, pool.adapters, plan.limits.adapter_roots
    environment = {**os.environ, **plan.launch.environment}
    pool.on_start = partial(identify, adapters=adapters, config=config, environment=environment)
    stats = RequestStats(name, says_all=plan.log_requests)
    service = Service(pool, Limits.of(plan), stats, tracer_of(name, os.environ))
    has_lora, runs_code = bool(roots), config.runs_code
    lora_manager = LoraManager(adapters, service, roots, is_enabled=has_lora, runs_code=runs_code)
    lora_manager.model_names = (name, *config.served_names)
    lora_manager.on_set, lora_manager.on_unequal = pool.note_adapter, pool.end_worker
    capabilities = service.start()
    _log.info(
        "%s: %s %s serves up to %d requests at once, each up to %d tokens",
        name,
        capabilities.engine,
        capabilities.version,
        plan.max_requests,
        capabilities.max_model_len,
    )
    context = Context(config.clients, adapters, runs_code, has_lora=has_lora)
    model = _model_info(plan, name, capabilities, pool.start_seconds)
    state = StateView(
        model,
        service,
        lora_manager,
        without_secrets(plan, os.environ).as_dict(),
        Redactor(os.environ, plan.secrets()),
        RECENT.after,
        time.time(),
    )
    renew = partial(renew_worker, service, pool, plan.launch.load_timeout)
    endpoint = Endpoint(state, context, renew)
    endpoint.open()
    seconds = plan.limits.drain_seconds
    return WorkersModel(service, endpoint, devices, pool, seconds)


def _model_info(
    plan: EnginePlan, name: str, capabilities: Capabilities, start_seconds: float
) -> ModelInfo:
    limits = plan.limits
    return ModelInfo(
        name=name,
        served_names=plan.config.served_names,
        root=plan.config.model,
        engine=capabilities.engine,
        version=capabilities.version,
        max_model_len=capabilities.max_model_len,
        longest_token=capabilities.longest_token,
        return_seconds=longest_wait(limits.migration_timeout, start_seconds + _SERVER_SECONDS),
        migration_limit=limits.migration_limit,
        is_resumable=limits.resumable,
        resume_window=limits.resume_window,
        capacity=plan.max_requests + limits.queue_size,
        digest=model_digest(plan.config, {**os.environ, **plan.launch.environment}),
    )
