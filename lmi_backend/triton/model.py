"""The model class Triton's Python backend instantiates. A model's `1/model.py` only imports it."""

from __future__ import annotations

import json
import logging
from typing import Any

import triton_python_backend_utils as pb_utils

from lmi_backend.errors import LmiError, UnavailableError
from lmi_backend.schema.request import read_request
from lmi_backend.triton import logs
from lmi_backend.triton.autocomplete import complete
from lmi_backend.triton.codec import error_response, read_inputs, requested_outputs
from lmi_backend.triton.guard import ServerGuard
from lmi_backend.triton.load import load_service
from lmi_backend.triton.metrics import MetricsPublisher
from lmi_backend.triton.sink import TritonSink

_log = logging.getLogger(__name__)


class TritonPythonModel:
    """One model: its workers, and the road from a Triton request to them and back."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Add what a written config.pbtxt would hold. Runs in an interpreter of its own."""
        return complete(auto_complete_model_config)

    def initialize(self, args: dict[str, str]) -> None:
        """Start the workers. Raising fails the load with the error's text."""
        logs.attach()
        try:
            self._service, self._plan = load_service(args, on_line=logs.log_worker_line)
        except LmiError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        self._metrics = MetricsPublisher(args["model_name"], self._service.snapshot)
        self._metrics.start()
        ServerGuard(self._service.kill).start()

    def execute(self, requests: list[Any]) -> None:
        """Take requests; answers follow from other threads."""
        for request in requests:
            self._take(request)

    def _take(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            inputs = read_inputs(request)
            parameters = json.loads(request.parameters() or "{}")
            generate, reply = read_request(inputs, parameters, dialect=self._plan.dialect)
            reply.outputs |= requested_outputs(request)
            self._service.submit(generate, TritonSink(request, sender, reply))
        except LmiError as error:
            _refuse(sender, error)
        except Exception:  # noqa: BLE001  without a final response its client would hang for ever
            _log.exception("a request could not be taken")
            _refuse(sender, UnavailableError("the request could not be taken; the log says why"))

    def is_ready(self) -> bool:
        """Tell whether a worker takes requests. Triton asks from 26.03 on."""
        return self._service.is_ready()

    def finalize(self) -> None:
        """Stop the workers. Triton calls it when the last answer has ended; nothing may be sent."""
        logs.detach()
        self._metrics.stop()
        self._service.close()


def _refuse(sender: Any, error: LmiError) -> None:
    sender.send(error_response(error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
