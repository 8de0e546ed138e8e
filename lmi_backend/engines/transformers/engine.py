"""The engine implementation of Transformers.

It is built around `generate`, and has a continuous batch where the library has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import chain

import msgspec
import transformers

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.protocol import DeltaSink, Rank
from lmi_backend.engines.steps import AnswerDeltas, StepOutput, given_groups
from lmi_backend.engines.tokens import TemplateEngine, longest_token, prompt_ids
from lmi_backend.engines.transformers.batched import ContinuousBatch
from lmi_backend.engines.transformers.loading import PeftAdapters, load, ranks
from lmi_backend.engines.transformers.sampling import (
    SEEDS,
    batch_arguments,
    can_be_batched,
    generation_config,
    is_sampled,
)
from lmi_backend.engines.transformers.solo import Solo
from lmi_backend.errors import RequestError
from lmi_backend.generation import Delta, GenerateRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats

_Steps = asyncio.Queue[tuple[int, StepOutput]]
"""The steps of all answers of a request, each with its answer's index."""


class TransformersEngine(TemplateEngine):
    """One model, or rank 0's part of it."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._max_running: int = config.arguments.get("max_batch_size", 1)
        self._stops = tuple(map(str, config.arguments.get("stop", ())))
        self._open = 0
        self._batch: ContinuousBatch | None = None
        """None for a model with an encoder."""

    async def start(self) -> Capabilities:
        await asyncio.to_thread(self._start)
        version, longest = transformers.__version__, self.longest_token
        return Capabilities("transformers", version, self.max_model_len, longest)

    def _start(self) -> None:
        loaded = load(self._config)
        self._adapters = PeftAdapters(loaded.model)
        self._is_seq2seq = loaded.is_seq2seq
        self.tokenizer, self.max_model_len = loaded.tokenizer, loaded.max_model_len
        self.longest_token = longest_token(loaded.tokenizer)
        if not loaded.is_seq2seq:
            self._batch = ContinuousBatch(loaded, self._config.arguments)
            self.max_model_len = self._batch.max_model_len
        base = self._base = loaded.model.generation_config
        self._is_drawn: bool = self._config.arguments.get("do_sample", bool(base.do_sample))
        text = loaded.model.config.get_text_config(decoder=True)
        self._vocabulary: int = text.vocab_size
        ends = base.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or ())
        self._solo = Solo(loaded, self._batch, self._adapters)

    async def generate(self, request: GenerateRequest, sink: DeltaSink) -> None:
        await self.check_health()
        self._adapters.check(request.adapter)
        if self._stops:
            request = self._with_stops(request)
        ids = await prompt_ids(
            request,
            self.tokenizer.encode,
            max_model_len=self.max_model_len,
            vocabulary=self._vocabulary,
            longest=self.longest_token,
        )
        steps: _Steps = asyncio.Queue()
        cancels: list[Callable[[], None]] = []
        self._open += request.n
        try:
            for index in range(request.n):
                cancels.append(self._submit(ids, request, index, steps))
            await self._forward(request, len(ids), steps, cancels, sink)
        finally:
            self._open -= request.n
            for cancel in cancels:
                cancel()

    def _with_stops(self, request: GenerateRequest) -> GenerateRequest:
        stops = (*request.sampling.stop, *self._stops)
        sampling = msgspec.structs.replace(request.sampling, stop=stops)
        return msgspec.structs.replace(request, sampling=sampling)

    async def _forward(
        self,
        request: GenerateRequest,
        num_prompt_tokens: int,
        steps: _Steps,
        cancels: list[Callable[[], None]],
        sink: DeltaSink,
    ) -> None:
        ends = frozenset[int]() if request.sampling.ignore_eos else self._ends
        sends_ids = self._config.sends_ids and request.stream and request.n == 1
        answers = [
            AnswerDeltas(self.tokenizer, request, num_prompt_tokens, ends, sends_ids=sends_ids)
            for _ in range(request.n)
        ]
        whole = [Delta(index=index) for index in range(request.n)]
        while not all(answer.is_over for answer in answers):
            index, step = await steps.get()
            if step.error is not None:
                raise step.error
            if answers[index].is_over:
                continue
            delta = answers[index].add(step)
            if not delta.num_tokens and not delta.prompt_tokens and not delta.is_last:
                continue
            delta.index = index
            if delta.is_last:
                cancels[index]()
            if not request.stream:
                whole[index].merge(delta)
                delta = whole[index]
            if request.stream or delta.is_last:
                sink.take(delta)

    def _submit(
        self, ids: list[int], request: GenerateRequest, index: int, steps: _Steps
    ) -> Callable[[], None]:
        """Start one answer, whose steps go into the queue; return a function that cancels it."""
        sampling = request.sampling
        is_drawn = is_sampled(sampling, self._is_drawn)

        def put(step: StepOutput) -> None:
            steps.put_nowait((index, step))

        ends = [] if sampling.ignore_eos else [*self._ends]
        ends += sampling.stop_token_ids
        max_new_tokens = min(sampling.max_tokens, self.max_model_len - len(ids))
        if self._batch is not None and can_be_batched(request, is_drawn=is_drawn):
            given = given_groups(request)
            for group in given:
                put(StepOutput(group))
            max_new_tokens -= sum(map(len, given))
            ids = [*ids, *chain.from_iterable(given)]
            if max_new_tokens <= 0:
                put(StepOutput(is_over=True))
                return lambda: None
            arguments = batch_arguments(sampling, self._base, self._vocabulary, is_drawn=is_drawn)
            arguments |= {"max_new_tokens": max_new_tokens, "eos_token_id": ends or -1}
            is_streamed = request.stream or bool(sampling.stop)
            return self._batch.submit(ids, arguments, put, is_streamed=is_streamed)
        self._refuse_solo(request)
        config = generation_config(
            request, self._base, ends, is_drawn=is_drawn, vocabulary=self._vocabulary
        )
        if sampling.bad_words:
            encode = self.tokenizer.encode
            config.bad_words_ids = [encode(w, add_special_tokens=False) for w in sampling.bad_words]
        if self._is_seq2seq:
            config.max_new_tokens = min(sampling.max_tokens, self.max_model_len)
        else:
            config.max_new_tokens = max_new_tokens
        return self._solo.submit(
            ids, _of_answer(request, index), config, put, asyncio.get_running_loop()
        )

    def _refuse_solo(self, request: GenerateRequest) -> None:
        """Raise RequestError for a request that `generate` cannot serve."""
        if request.prompt_logprobs is not None and self._is_seq2seq:
            raise RequestError("are not served of an encoder's prompt", field="prompt_logprobs")
        # Ranks agree through the batch only.
        if ranks() > 1:
            problem = "need what Transformers' continuous batch cannot do, and nothing else can"
            accepted = (
                "temperature, top_k, top_p, max_new_tokens and stops where "
                "option.tensor_parallel_degree is more than 1"
            )
            raise RequestError(problem, field="sampling parameters", accepted=accepted)

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        # Once it is loaded it is kept.
        load = partial(self._adapters.load, name, folder, is_now=preload)
        await asyncio.to_thread(self._solo.between, load)

    async def unload_adapter(self, name: str) -> None:
        await asyncio.to_thread(self._solo.between, lambda: self._adapters.unload(name))

    def stats(self) -> EngineStats:
        running = min(self._open, self._max_running if self._batch else 1)
        return EngineStats(running=running, waiting=self._open - running)

    async def check_health(self) -> None:
        if self._batch is not None:
            self._batch.check_health()

    async def close(self) -> None:
        if not hasattr(self, "_solo"):
            return
        self._solo.close()
        if self._batch is not None:
            await asyncio.to_thread(self._batch.close)


def _of_answer(request: GenerateRequest, index: int) -> GenerateRequest:
    """Return what one of several answers is generated of: a seed makes each another."""
    seed = request.sampling.seed
    if not index or seed is None:
        return request
    sampling = msgspec.structs.replace(request.sampling, seed=(seed + index) % SEEDS)
    return msgspec.structs.replace(request, sampling=sampling)


class TransformersFollower(Rank):
    """A rank after the first: has its part of the model, and follows rank 0's batch."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._batch: ContinuousBatch | None = None

    async def start(self) -> Capabilities:
        loaded = await asyncio.to_thread(load, self._config)
        self._batch = ContinuousBatch(loaded, self._config.arguments)
        return Capabilities("transformers", transformers.__version__, loaded.max_model_len)

    async def check_health(self) -> None:
        if self._batch is not None:
            self._batch.check_health()

    async def close(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            await asyncio.to_thread(batch.close)
