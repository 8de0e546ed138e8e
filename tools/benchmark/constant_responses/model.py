"""A model that does nothing but send: what responses cost in Triton's Python backend at least."""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

_STEP_SECONDS = 0.045
"""About what a step of 256 sequences takes in the engine of the other targets."""
_SENDERS = 2
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Sends each request `max_tokens` responses of one word, those of all in one step."""

    def initialize(self, args: dict[str, str]) -> None:
        self._new: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._due: queue.SimpleQueue[tuple[Any, int]] = queue.SimpleQueue()
        for work in (self._step, *[self._send] * _SENDERS):
            threading.Thread(target=work, daemon=True).start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            wanted = json.loads(inputs["sampling_parameters"][0])["max_tokens"]
            self._new.put([request.get_response_sender(), wanted])

    def _step(self) -> None:
        running: list[list[Any]] = []
        due = time.monotonic()
        while True:
            while not self._new.empty():
                running.append(self._new.get())
            for item in running:
                item[1] -= 1
                self._due.put((item[0], 0 if item[1] else _FINAL))
            running = [item for item in running if item[1]]
            due = max(due + _STEP_SECONDS, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _send(self) -> None:
        while True:
            sender, flags = self._due.get()
            text = pb_utils.Tensor("text_output", np.array([b" word"], dtype=np.object_))
            sender.send(pb_utils.InferenceResponse([text]), flags=flags)
