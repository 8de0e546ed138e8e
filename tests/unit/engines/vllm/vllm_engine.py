"""Doubles of vLLM's engine, with its signatures."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import answers, fast_paths, names, processor
from lmi_backend.engines.vllm.answers import generate
from lmi_backend.engines.vllm.bodies import EngineClient
from lmi_backend.engines.vllm.lora import LoraAdapters
from lmi_backend.structures import StructureBounds
from tests.support.run.waiting import HANG_SECONDS, turns
from tests.unit.engines.vllm.vllm_parts import (
    PROMPT,
    ClientError,
    Collector,
    CompletionOutput,
    DeltaMessage,
    Detokenizer,
    FinishReason,
    Kind,
    Lists,
    LogprobsProcessor,
    Output,
    Params,
    Request,
    RequestOutput,
    Tokenizer,
    lists,
)


class State:
    """RequestState."""

    def __init__(self, request: Any, tokenizer: Any, index: int, queue: Any, interval: int) -> None:
        params = request.sampling_params
        self.prompt, self.index, self.queue = request.prompt_token_ids, index, queue
        self.detokenizer = self.logprobs_processor = None
        if params is not None:
            tokenizer = tokenizer if params.detokenize else None
            self.detokenizer = Detokenizer.from_new_request(tokenizer, request)
            self.logprobs_processor = LogprobsProcessor.from_new_request(tokenizer, request)
        self.is_prefilling, self.lora_name = True, None
        self.num_cached_tokens = 0
        self.stream_interval, self.sent_tokens_offset = interval, 0


class OutputProcessor:
    """As vLLM's; its outputs are deltas."""

    def __init__(self, tokenizer: Any = None, stream_interval: int = 1) -> None:
        self.tokenizer, self.stream_interval = tokenizer, stream_interval
        self.request_states: dict[str, State] = {}
        self.seen: list[Any] = []
        """Outputs that it has processed."""
        self.counts: Any = None
        """What it counted the last ones in."""

    def add_request(
        self, request: Any, prompt: Any, parent_req: Any = None, request_index: int = 0,
        queue: Any = None,
    ) -> None:  # fmt: skip
        given = self.tokenizer, request_index, queue, self.stream_interval
        self.request_states[request.request_id] = State(request, *given)

    def process_outputs(
        self, engine_core_outputs: list[Any], engine_core_timestamp: float | None = None,
        iteration_stats: Any = None, weight_version: str | None = None,
    ) -> Any:  # fmt: skip
        self.seen += engine_core_outputs
        self.counts = iteration_stats
        aborted = []
        for output in engine_core_outputs:
            state = self.request_states.get(output.request_id)
            if state is None:
                continue
            state.is_prefilling = False
            # The list itself: vLLM extends it where it merges outputs that nobody has read.
            reason, ids = output.finish_reason, output.new_token_ids
            before = state.detokenizer.num_output_tokens()
            stop = state.detokenizer.update(ids, reason == FinishReason.STOP)
            if stop:
                reason = FinishReason.STOP
                ids = ids[: state.detokenizer.num_output_tokens() - before]
            self._put(state, output, ids, reason, stop)
            if reason is not None:
                del self.request_states[output.request_id]
                if output.finish_reason is None:
                    aborted.append(output.request_id)
        return SimpleNamespace(request_outputs=[], reqs_to_abort=aborted)

    def _put(self, state: State, output: Any, ids: list[int], reason: Any, stop: Any) -> None:
        state.logprobs_processor.update_from_output(output)
        count, sent = state.detokenizer.num_output_tokens(), state.sent_tokens_offset
        if state.stream_interval > 1:
            if reason is None and sent and count - sent < state.stream_interval:
                return
            ids, state.sent_tokens_offset = state.detokenizer.token_ids[sent:], count
        logprobs = state.logprobs_processor.logprobs
        made = CompletionOutput(
            state.index,
            state.detokenizer.get_next_output_text(reason is not None, True),
            ids,
            state.logprobs_processor.cumulative_logprob,
            None if logprobs is None else logprobs[-len(ids) :] if ids else [],
            None if reason is None else str(reason),
            stop or output.stop_reason,
        )
        prompt = state.logprobs_processor.pop_prompt_logprobs()
        is_over = reason is not None
        output = RequestOutput(output.request_id, None, state.prompt, prompt, [made], is_over)
        output.num_cached_tokens = state.num_cached_tokens
        state.queue.put(output)

    def propagate_error(self, e: Exception) -> None:
        for state in self.request_states.values():
            state.queue.put(e)

    def get_num_unfinished_requests(self) -> int:
        return len(self.request_states)

    def has_unfinished_requests(self) -> bool:
        return len(self.request_states) > 0

    def get_num_queued_tokens(self) -> int:
        return sum(len(each.prompt or ()) for each in self.request_states.values())


class Core:
    """The client of a core, which generates `text` after the prompt, a token a step."""

    def __init__(self, engine: "AsyncLLM", text: Sequence[int]) -> None:
        self._engine, self.text = engine, list(text)
        self.added: list[Any] = []
        self.aborted: list[str] = []
        self.others: dict[int, int] = {}
        """What it generates instead of the text, by place."""

    async def add_request_async(self, request: Any) -> None:
        self.added.append(request)
        if self.text:
            asyncio.get_running_loop().call_soon(self._step, request, len(request.prompt_token_ids))

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        self.aborted += request_ids

    def _step(self, request: Any, place: int) -> None:
        if request.request_id in self.aborted:
            return
        token = self.others.get(place - len(PROMPT), self.text[place - len(PROMPT)])
        first, params = len(request.prompt_token_ids), request.sampling_params
        is_last = place - first + 1 >= params.max_tokens or place + 1 - len(PROMPT) == len(
            self.text
        )
        found = lists([token], 1, 3) if params.logprobs is not None else None
        reason = FinishReason.LENGTH if is_last else None
        self._engine.step(Output(request.request_id, [token], found, finish_reason=reason))
        if not is_last:
            asyncio.get_running_loop().call_soon(self._step, request, place + 1)


class AsyncLLM:
    """As vLLM's, with its core."""

    errored = False
    logger_manager = None

    def __init__(
        self, text: Sequence[int] = (), *, stream_interval: int = 1, is_attached: bool = True
    ) -> None:
        self.output_processor: Any = OutputProcessor(Tokenizer(), stream_interval)
        self.engine_core = Core(self, text)
        self.model_config = SimpleNamespace(max_model_len=64, logits_processors=None)
        self.vllm_config = SimpleNamespace(speculative_config=None, watermark_config=None)
        if is_attached:
            processor.attach(self)

    async def add_request(  # noqa: PLR0917  as vLLM's
        self, request_id: str, prompt: Any, params: Any, arrival_time: float | None = None,
        lora_request: Any = None, tokenization_kwargs: Any = None, trace_headers: Any = None,
        priority: int = 0, data_parallel_rank: int | None = None,
    ) -> Any:  # fmt: skip
        if not prompt["prompt_token_ids"]:
            raise ValueError("The prompt cannot be empty")
        queue = Collector(params.output_kind, request_id)
        for index in range(params.n):
            own_id = request_id if params.n == 1 else f"{index}_{request_id}"
            request = Request(own_id, list(prompt["prompt_token_ids"]), params.clone())
            self.output_processor.add_request(request, None, None, index, queue)
            await self.engine_core.add_request_async(request)
        return queue

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, *, prompt_text: Any = None,
        lora_request: Any = None, tokenization_kwargs: Any = None, trace_headers: Any = None,
        priority: int = 0, data_parallel_rank: int | None = None,
    ) -> AsyncIterator[Any]:  # fmt: skip
        queue, is_over = await self.add_request(request_id, prompt, sampling_params), False
        try:
            while not is_over:
                made = queue.get_nowait() or await queue.get()
                is_over = made.finished
                yield made
        finally:
            if not is_over:
                await self.engine_core.abort_requests_async([request_id])

    def step(self, *outputs: Any) -> None:
        """Process outputs of the core, as vLLM's loop does."""
        processed = self.output_processor.process_outputs(list(outputs), 0.0, None)
        self.engine_core.aborted += processed.reqs_to_abort


def decoded(tokenizer: Any, token_ids: Sequence[int]) -> list[str]:
    """Return the texts of tokens, each alone, as `convert_ids_list_to_tokens` does."""
    return [tokenizer.decode([each]) for each in token_ids]


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the doubles into the place of vLLM's names."""
    module = SimpleNamespace(convert_ids_list_to_tokens=decoded)
    for name, each in {
        "AsyncLLM": AsyncLLM, "SamplingParams": Params, "RequestOutputKind": Kind,
        "FinishReason": FinishReason, "EngineCoreOutput": Output, "EngineCoreRequest": Request,
        "LogprobsLists": Lists, "IncrementalDetokenizer": Detokenizer, "logprobs": module,
        "LogprobsProcessor": LogprobsProcessor, "RequestOutputCollector": Collector,
        "RequestOutput": RequestOutput, "CompletionOutput": CompletionOutput,
        "VLLMClientError": ClientError, "DeltaMessage": DeltaMessage, "vllm_version": "0.99",
        "tokens_input": None, "current_platform": SimpleNamespace(is_cpu=lambda: False),
    }.items():  # fmt: skip
        monkeypatch.setitem(vars(names), name, each)
    monkeypatch.setattr(fast_paths, "_off", {"forced_tokens": "there is no core"})
    monkeypatch.setattr(answers, "_texts", {})


class Sink:
    """Takes chunks; lets tokens stay where a step is one of those that are deferred."""

    def __init__(self, deferred: Iterable[int] = ()) -> None:
        self.taken: list[Any] = []
        self.asked: list[int] = []
        self._deferred, self._flushes = {*deferred}, list[Any]()
        self.take = self.taken.append

    def defer(self, flush: Any, num_tokens: int) -> bool:
        self.asked.append(num_tokens)
        self._flushes.append(flush)
        return len(self.asked) - 1 in self._deferred

    async def drain(self) -> None:
        """Wait for nothing."""

    def flush(self) -> None:
        """Have what stays handed over, as a tick does."""
        for flush in self._flushes:
            flush()


async def answered(
    engine: AsyncLLM, maker: Any, outputs: Iterable[Any], sink: Sink, **params: Any
) -> Exception | None:
    """Have outputs of a core answer a request; return why it fails."""
    continuation = params.pop("continuation", None)
    arguments = {
        "request_id": "a", "prompt": {"prompt_token_ids": PROMPT}, "params": Params(**params),
    }  # fmt: skip
    answering = generate(engine, arguments, maker, sink, continuation=continuation)
    task = asyncio.ensure_future(answering)
    await turns()
    for output in outputs:
        engine.step(output)
    try:
        await asyncio.wait_for(task, HANG_SECONDS)
    except Exception as error:  # noqa: BLE001  it is what is looked at
        return error
    return None


def client_of(engine: AsyncLLM) -> EngineClient:
    """Return the engine as vLLM's server sees it."""
    trials: Any = SimpleNamespace(check=lambda params: turns(0))
    return EngineClient(engine, StructureBounds(), trials, LoraAdapters(1))
