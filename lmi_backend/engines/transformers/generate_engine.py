"""An engine around `generate`, and a continuous batch where the library has one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.chat import chat_ids
from lmi_backend.engines.transformers.loaded import Batch, Loaded, NoAdapters
from lmi_backend.engines.transformers.sampling import (
    batch_arguments,
    can_be_batched,
    generation_config,
    is_sampled,
)
from lmi_backend.engines.transformers.solo import Solo
from lmi_backend.engines.transformers.steps import Answer, Step
from lmi_backend.errors import RequestError
from lmi_backend.generation import Delta, GenerateRequest
from lmi_backend.ipc.engine import Capabilities, EngineStats

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

# Characters above which a prompt is tokenised in a thread; below, the hop costs more.
_LONG_PROMPT = 4096


@dataclass(frozen=True)
class _Defaults:
    """What the model's generation_config.json says, for requests that do not."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    vocabulary: int


class GenerateEngine:
    """One model, or this rank's part of it. A library's own engine says how it is loaded."""

    NAME = ""
    VERSION = ""
    """Of the library."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._max_running: int = config.arguments.get("max_batch_size", 1)
        self._open = 0
        self._batch: Batch | None = None
        self._adapters: NoAdapters = NoAdapters()

    def load(self) -> Loaded:
        """Load the model; set `_batch` and `_adapters` where the library has them.

        Raises:
            ConfigurationError: the library refuses the model or an argument.
        """
        raise NotImplementedError

    async def start(self) -> Capabilities:
        """See `Engine`."""
        await asyncio.to_thread(self._start)
        return Capabilities(self.NAME, self.VERSION, self._loaded.max_model_len, adapters=True)

    def _start(self) -> None:
        loaded = self._loaded = self.load()
        base = self._base = loaded.model.generation_config
        self._is_drawn: bool = self._config.arguments.get("do_sample", bool(base.do_sample))
        text = loaded.model.config.get_text_config(decoder=True)
        self._defaults = _Defaults(base.temperature, base.top_k, base.top_p, text.vocab_size)
        ends = base.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or ())
        self._solo = Solo(loaded, self._batch, self._adapters)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """See `Engine`."""
        await self.check_health()
        ids = await self._prompt(request)
        steps: asyncio.Queue[tuple[int, Step]] = asyncio.Queue()
        cancels: list[Callable[[], None]] = []
        self._open += request.n
        try:
            for index in range(request.n):
                cancels.append(self._submit(ids, request, index, steps))
            async for delta in self._deltas(request, len(ids), steps, cancels):
                yield delta
        finally:
            self._open -= request.n
            for cancel in cancels:
                cancel()

    async def _deltas(
        self,
        request: GenerateRequest,
        num_prompt_tokens: int,
        steps: asyncio.Queue[tuple[int, Step]],
        cancels: list[Callable[[], None]],
    ) -> AsyncGenerator[Delta, None]:
        ends = frozenset[int]() if request.sampling.ignore_eos else self._ends
        answers = [
            Answer(self._loaded.tokenizer, request, num_prompt_tokens, ends)
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
            delta.index = index
            if delta.is_last:
                cancels[index]()
            if not request.stream:
                whole[index].merge(delta)
                delta = whole[index]
            if request.stream or delta.is_last:
                yield delta

    def _submit(
        self,
        ids: list[int],
        request: GenerateRequest,
        index: int,
        steps: asyncio.Queue[tuple[int, Step]],
    ) -> Callable[[], None]:
        asked = request.sampling
        is_drawn = is_sampled(asked, self._is_drawn)

        def put(step: Step) -> None:
            steps.put_nowait((index, step))

        ends = [] if asked.ignore_eos else [*self._ends]
        ends += asked.stop_token_ids
        room = min(asked.max_tokens, self._loaded.max_model_len - len(ids))
        if self._batch is not None and can_be_batched(request, is_drawn=is_drawn):
            arguments = batch_arguments(asked, self._defaults, is_drawn=is_drawn)
            arguments |= {"max_new_tokens": room, "eos_token_id": ends or -1}
            is_streamed = request.stream or bool(asked.stop)
            return self._batch.submit(ids, arguments, put, is_streamed=is_streamed)
        self.refuse_alone(request)
        config = generation_config(request, self._base, ends, is_drawn=is_drawn)
        if asked.bad_words:
            encode = self._loaded.tokenizer.encode
            config.bad_words_ids = [encode(w, add_special_tokens=False) for w in asked.bad_words]
        if self._loaded.is_seq2seq:
            config.max_new_tokens = min(asked.max_tokens, self._loaded.max_model_len)
        else:
            config.max_new_tokens = room
        return self._solo.submit(ids, request, config, put, asyncio.get_running_loop())

    def refuse_alone(self, request: GenerateRequest) -> None:
        """Raise RequestError where `generate` cannot do it."""

    async def _prompt(self, request: GenerateRequest) -> list[int]:
        if request.images:
            raise RequestError("is given, but this engine takes text only", field="image")
        self._adapters.check(request.adapter)
        ids = await self._tokenize(request.prompt)
        if (keep := request.sampling.truncate_prompt_tokens) is not None:
            ids = ids[-keep:]
        longest = self._loaded.max_model_len
        if not 0 < len(ids) < longest:
            accepted = f"at least one, fewer than {longest}, to leave room for an answer"
            raise RequestError(f"has {len(ids)} tokens", field="prompt", accepted=accepted)
        return ids

    async def chat_prompt(
        self, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> list[int]:
        """See `TemplateEngine`."""
        return await asyncio.to_thread(chat_ids, self._loaded.tokenizer, messages, options)

    async def _tokenize(self, prompt: str | tuple[int, ...]) -> list[int]:
        if isinstance(prompt, tuple):
            size = self._defaults.vocabulary
            if unknown := [number for number in prompt if not 0 <= number < size]:
                problem = f"has token id {unknown[0]}"
                raise RequestError(problem, field="prompt", accepted=f"0 to {size - 1}")
            return list(prompt)
        encode: Callable[[str], Any] = self._loaded.tokenizer.encode
        if len(prompt) > _LONG_PROMPT:
            return list(await asyncio.to_thread(encode, prompt))
        return list(encode(prompt))

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        """See `LoraEngine`; an adapter is always loaded at once and kept."""
        await asyncio.to_thread(self._solo.between, lambda: self._adapters.load(name, folder))

    async def unload_adapter(self, name: str) -> None:
        """See `LoraEngine`."""
        await asyncio.to_thread(self._solo.between, lambda: self._adapters.unload(name))

    def stats(self) -> EngineStats:
        """See `Engine`."""
        running = min(self._open, self._max_running if self._batch else 1)
        return EngineStats(running=running, waiting=self._open - running)

    async def check_health(self) -> None:
        """See `Engine`."""
        if self._batch is not None:
            self._batch.check_health()

    async def close(self) -> None:
        """See `Engine`."""
        if not hasattr(self, "_solo"):
            return
        self._solo.close()
        if self._batch is not None:
            await asyncio.to_thread(self._batch.close)
