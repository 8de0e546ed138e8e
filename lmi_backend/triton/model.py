"""The model class Triton's Python backend instantiates. A model's `1/model.py` only imports it."""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

from lmi_backend.clients.parameters import DroppedParameters, read_json
from lmi_backend.clients.request import read_request, take_trace, with_trace
from lmi_backend.clients.spec import AdapterChange, Cancel, ParsedRequest
from lmi_backend.clients.trtllm import stop_id
from lmi_backend.endpoint.client import AliasModel
from lmi_backend.errors import LmiError, UnavailableError
from lmi_backend.generation import HttpRequest
from lmi_backend.machine import machine_problem
from lmi_backend.names import check_name
from lmi_backend.repository.variants import SHARES
from lmi_backend.serving.new_requests import Sender
from lmi_backend.triton import logs
from lmi_backend.triton.codec import Codec, error_response
from lmi_backend.triton.hand_written import checked_variant, complete
from lmi_backend.triton.metrics import MetricsPublisher
from lmi_backend.triton.orphan_guard import start_guard
from lmi_backend.triton.server_process import (
    close_shared_memory,
    server_process,
    shared_memory,
    warn_of_exposures,
)
from lmi_backend.triton.sink import FINAL, TritonSink

if TYPE_CHECKING:
    from lmi_backend.triton.workers import WorkersModel

_log = logging.getLogger(__name__)


class TritonPythonModel:
    """One model: its workers, and the way of a Triton request to them and back."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Add what a written config.pbtxt would hold. Runs in an interpreter of its own."""
        try:
            return complete(auto_complete_model_config)
        except LmiError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def initialize(self, args: dict[str, str]) -> None:
        """Start the workers. Raising fails the load with the error's text."""
        logs.attach()
        close_shared_memory()
        start_guard(args["model_name"], server_process(), shared_memory())
        self._dropped = DroppedParameters()
        try:
            config = json.loads(args["model_config"])
            entries: dict[str, dict[str, str]] = config.get("parameters", {})
            parameters = {key: entry["string_value"] for key, entry in entries.items()}
            # Also where the server completes no configuration.
            self._variant = checked_variant(config)
            self.codec = Codec(self._variant)
            self.loaded = _loaded(args, parameters.get(SHARES))
        except LmiError as error:
            raise pb_utils.TritonModelException(logs.redacted(str(error))) from None
        except Exception as error:  # noqa: BLE001  Triton would show its text to clients as it is
            if not (problem := machine_problem(error)):
                _log.exception("the model could not be loaded")
                problem = f"{type(error).__name__}: {error}"
            text = f"the model could not be loaded: {problem}"
            raise pb_utils.TritonModelException(logs.redacted(text)) from None
        warn_of_exposures(args["model_name"])
        self.publisher = MetricsPublisher(
            args["model_name"],
            args["model_version"],
            self.loaded.service.snapshot,
            is_vllm_too=reports_vllm_metrics(parameters),
        )
        self.publisher.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            try:
                self._take(request, request.get_response_sender())
            except Exception:  # noqa: BLE001  those after it in the batch are taken
                _log.exception("a request could not be refused")

    def _take(self, request: Any, sender: Any) -> None:
        try:
            # Triton sends it back with each response.
            check_name("id", request.request_id())
            rows = self.codec.read_inputs(request)
            parameters = read_json("parameters", request.parameters() or "{}")
            trace = take_trace(parameters) or _own_trace(request)
            parsed = read_request(
                rows,
                parameters,
                self.loaded.context(),
                is_trtllm=self._variant.is_trtllm,
                step=self._variant.step,
            )
            parsed.reply.outputs |= self.codec.requested_outputs(request)
            self._start(request, sender, parsed, trace, _seconds(request, parameters))
        except LmiError as error:
            self.loaded.service.refused(error)
            sender.send(error_response(error), flags=FINAL)
        except Exception:  # noqa: BLE001  without a final response its client would hang for ever
            _log.exception("a request could not be read")
            unread = UnavailableError("the request could not be read; the log says why")
            sender.send(error_response(unread), flags=FINAL)

    def _start(
        self,
        request: Any,
        sender: Any,
        parsed: ParsedRequest,
        trace: dict[str, str],
        seconds: float,
    ) -> None:
        sink = TritonSink(
            request, parsed.reply, self.codec, is_decoupled=self._variant.is_decoupled
        )
        try:
            match parsed.work:
                case AdapterChange(body):
                    self.loaded.change_adapter(body, sink)
                case Cancel():
                    self.loaded.service.cancel(stop_id(request.request_id()))
                    sender.send(pb_utils.InferenceResponse(output_tensors=[]), flags=FINAL)
                case HttpRequest() | tuple() as work:
                    session = parsed.session or session_of_sequence(request)
                    client = Sender(parsed.tenant, session, parsed.promise)
                    self.loaded.service.submit(with_trace(work, trace), sink, client, seconds)
        except LmiError as error:
            self.loaded.service.refused(error)
            sink.fail(error)
        self._dropped.note(parsed.dropped)

    def is_ready(self) -> bool:
        """Tell whether requests are answered, now or once a worker is started again.

        Triton calls it from 26.03 on. From 26.04 on one model that is not ready makes the whole
        server not ready (core#473). A probe would then stop its other models for each restart.
        """
        return not self.loaded.service.health().is_given_up

    def finalize(self) -> None:
        """Stop the workers. Triton calls it after the last answer; nothing may be sent."""
        logs.detach()
        try:
            # Requests of the endpoint, of which Triton knows nothing, end in here and count.
            self.loaded.close()
        finally:
            self.publisher.stop()
            if _is_later():
                # Registered last, it is called first: a stub of 26.04 or later crashes when it ends
                # its interpreter (python_backend#433), and nothing is left to end. Without its
                # interpreter's end, 24.10 dies in loads and unloads under load.
                atexit.register(os._exit, 0)


def _loaded(args: dict[str, str], shares: str | None) -> AliasModel | WorkersModel:
    """Start a model of `initialize`'s arguments, which may share another's workers."""
    if shares is not None:
        return AliasModel(shares)
    # An alias model needs none of this: each of them starts 0.1 s sooner and takes 8 MB less.
    from lmi_backend.triton.workers import start_workers  # noqa: PLC0415

    return start_workers(args, logs.log_worker_line, logs.keep_out)


def reports_vllm_metrics(parameters: dict[str, str]) -> bool:
    """Tell whether vLLM's names of metrics are wanted, as Triton's vLLM backend is told."""
    text = parameters.get("REPORT_CUSTOM_METRICS", "")
    return text.strip().lower() not in ("false", "no", "0")


def _is_later() -> bool:
    """Tell whether the server is of 25.02 or later: responses have parameters (python_backend#394).

    A stub is not told its release.
    """
    return "parameters" in (pb_utils.InferenceResponse.__init__.__doc__ or "")


def _own_trace(request: Any) -> dict[str, str]:
    """Return the headers of the trace that Triton itself writes, if it does."""
    context = request.trace().get_context()
    return take_trace(read_json("trace", context)) if context else {}


def session_of_sequence(request: Any) -> str:
    """Return the sequence that a client of Triton names, which has requests in common."""
    # A stub of 2023 does not tell it; 0 is none.
    tell = getattr(request, "correlation_id", None)
    return str((tell and tell()) or "")


def _seconds(request: Any, parameters: dict[str, Any]) -> float:
    """Return how long a request may take; its client says it in microseconds, 0 is for ever.

    Triton takes it out of the parameters of gRPC and `/infer`, and leaves it in `/generate`'s.
    """
    microseconds = request.timeout() or parameters.get("timeout")
    return microseconds / 1e6 if type(microseconds) is int and microseconds > 0 else math.inf
