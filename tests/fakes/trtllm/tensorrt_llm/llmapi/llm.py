"""LLM: argument names are checked as the library does; one thread steps all requests."""

import itertools
import os
import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

from ..executor.iteration import Iterations
from ..executor.result import Logprob, RequestOutput
from ..executor.utils import RequestError
from ..recorded import RECORD, VERSION, recorded
from .tokenizer import WordTokenizer
from .worker import end, through, work

# One that a later release may not have.
_FIELDS = frozenset(RECORD["LLM arguments"]) - {os.environ.get("DOUBLE_LACKS")}
_STEP_SECONDS = 0.002
_TOKENS_PER_BLOCK = 32


class LLM:
    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        tokenizer_mode: str = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        for name in kwargs:
            if name not in _FIELDS and name not in ("_mpi_session", "backend"):
                raise ValueError(f"LLM got invalid argument: {name}")
        self._iterations = Iterations(is_pushed=VERSION in ("1.0.0", "1.1.0"))
        self._counts_steps = kwargs.get("enable_iter_perf_stats", False)
        self.args = SimpleNamespace(**{"max_seq_len": 4096} | kwargs)
        self.tokenizer = WordTokenizer()
        self._session = kwargs.get("_mpi_session")
        if self._session is not None:
            if self._session.n_workers != tensor_parallel_size:
                raise ValueError("the world size must be that of the session")
            self._session.submit(work)
        self._numbers = itertools.count()
        self._incoming: queue.Queue[Any] = queue.Queue()
        self._is_down = False
        threading.Thread(target=self._step_all, daemon=True).start()

    @recorded("tensorrt_llm:LLM.generate_async")
    def generate_async(
        self, inputs: Any, sampling_params: Any, streaming: bool, lora_request: Any, **_: Any
    ) -> RequestOutput:
        if self._is_down:
            raise RuntimeError("LLM is shutting down")
        ids = inputs if isinstance(inputs, list) else self.tokenizer.encode(inputs)
        if len(ids) > 8192:
            raise ValueError("The sum of prompt length and max_tokens should not exceed")
        result = RequestOutput(next(self._numbers), ids, sampling_params.n)
        self._iterations.submitted()
        self._incoming.put(_Request(self, ids, sampling_params, result, streaming, lora_request))
        return result

    def get_stats(self, timeout: float | None = 2) -> list[dict[str, Any]]:
        raise NotImplementedError

    def get_stats_async(self, timeout: float | None = 2) -> Any:
        return self._iterations.read(timeout or 0)

    def shutdown(self) -> None:
        if self._is_down:
            return
        self._is_down = True
        if self._session is not None:
            end(self._session.comm)
            self._session.shutdown()

    def pass_through(self, word: str) -> str:
        return through(self._session.comm, word) if self._session is not None else word

    def _step_all(self) -> None:
        running: list[_Request] = []
        while not self._is_down:
            try:
                while True:
                    running.append(self._incoming.get(block=not running, timeout=0.1))
            except queue.Empty:
                pass
            if self._counts_steps:
                used = sum(request.blocks() for request in running)
                self._iterations.add(used, len(running))
            running = [request for request in running if request.step()]
            time.sleep(_STEP_SECONDS)


class _Request:
    def __init__(self, llm: LLM, ids: Any, params: Any, result: Any, streaming: bool, lora: Any):
        self._llm, self._ids, self._params = llm, ids, params
        self._result, self._streaming = result, streaming
        words = [llm.tokenizer.decode([number]) for number in ids]
        # A sequence goes on as it has begun: an answer that is a part of the prompt, too.
        starts = range(1, len(words))
        period = next((n for n in starts if words[n:] == words[:-n]), len(words))
        words = [words[(len(words) + n) % period] for n in range(period)]
        self._words = [f" {lora.lora_name}"] if lora else words
        self._count, self._held = 0, []

    def blocks(self) -> int:
        return -(-(len(self._ids) + self._count) // _TOKENS_PER_BLOCK)

    def step(self) -> bool:
        """Make a token of each answer; tell whether there are more to make."""
        if self._result.aborted():
            self._result.put(lambda result: _finish(result, "cancelled"))
            return False
        word = self._llm.pass_through(self._words[self._count % len(self._words)])
        if word.strip() == "unlucky":
            self._result.put(RequestError("the double was told to fail"))
            return False
        if word.strip() == "deadly":
            self._llm._is_down = True
            self._result.put(RuntimeError("the double was told to die"))
            return False
        self._count += 1
        is_stop = word.strip() in (self._params.stop or ())
        reason = "stop" if is_stop else "length" if self._count >= self._params.max_tokens else None
        self._held.append((word, reason))
        if self._streaming or reason:
            held, self._held = self._held, []
            self._result.put(lambda result: self._write(result, held))
        return reason is None

    def _write(self, result: Any, held: list[Any]) -> None:
        for answer in result.outputs:
            for word, reason in held:
                (number,) = self._llm.tokenizer.encode(word)
                answer.token_ids.append(number)
                if self._params.logprobs:
                    answer.logprobs.append({number: Logprob(-0.5, 1)})
                    answer.cumulative_logprob = -0.5 * len(answer.token_ids)
                if reason == "stop":
                    answer.stop_reason = word.strip()
                else:
                    answer.text += word
                answer.finish_reason = reason
            if self._params.prompt_logprobs and not answer.prompt_logprobs:
                answer.prompt_logprobs = [{n: Logprob(-0.5, 1)} for n in self._ids[1:]]
        result.finished = held[-1][1] is not None


def _finish(result: Any, reason: str) -> None:
    for answer in result.outputs:
        answer.finish_reason = reason
    result.finished = True
