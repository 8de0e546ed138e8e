"""A LoRA adapter whose files TensorRT-LLM reads with the first request for it, and later again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from lmi_backend.adapter_files import Seen, problem_of, seen
from lmi_backend.engines.trtllm import compat
from lmi_backend.errors import RequestError


class NumberedAdapter:
    """An adapter that is known.

    Args:
        numbers: by which the library tells adapters apart.
        max_rank: the largest rank that is served; 0 if it is not known.
    """

    def __init__(self, name: str, folder: str, numbers: Iterator[int], max_rank: int) -> None:
        self._name, self._folder, self._numbers = name, folder, numbers
        self._max_rank = max_rank or sys.maxsize
        self._files: Seen | None = None
        self._request: Any = None

    def request(self) -> Any:
        """Return the library's request for it, if its files are whole.

        Raises:
            RequestError: they are not: the library would fail on them in the middle of a step.
        """
        files = seen(self._folder)
        if files != self._files:
            if problem := problem_of(self._folder, self._max_rank):
                problem = f"cannot be loaded by TensorRT-LLM: {problem}"
                raise RequestError(problem, field="adapter", value=self._name)
            self._request = compat.LoRARequest(self._name, next(self._numbers), self._folder)
            self._files = files
        return self._request
