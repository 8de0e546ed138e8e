"""The vLLM adapter."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.protocol import Capabilities, EngineConfig, EngineStats
from lmi_backend.engines.vllm import compat
from lmi_backend.engines.vllm.arguments import engine_args
from lmi_backend.engines.vllm.sampling import sampling_params
from lmi_backend.engines.vllm.stats import LastStats
from lmi_backend.errors import (
    ConfigurationError,
    EngineDeadError,
    EngineError,
    LmiError,
    RequestError,
)
from lmi_backend.generation import Delta, GenerateRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

# Characters above which a prompt is tokenised in a thread; below, the hop costs more.
_LONG_PROMPT = 4096


class VllmEngine:
    """One AsyncLLM; it runs its scheduler and ranks in processes of its own."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._engine: Any = None
        self._tokenizer: Any = None
        self._max_model_len = 0
        self._model_defaults: dict[str, Any] = {}
        self._last_stats = LastStats()
        self._ids = itertools.count()
        # vLLM tells adapters apart by a whole number from 1.
        self._adapters = {
            name: compat.LoRARequest(name, number, folder)
            for number, (name, folder) in enumerate(config.adapters.items(), start=1)
        }

    async def start(self) -> Capabilities:
        """See `Engine`."""
        arguments = engine_args(self._config)
        try:
            # Blocks until the engine core has loaded the model.
            self._engine = await asyncio.to_thread(
                compat.AsyncLLM.from_engine_args,
                arguments,
                stat_loggers=[self._last_stats.logger],
            )
        except ValueError as error:
            message = f"vLLM refuses to start: {error}"
            raise ConfigurationError(message) from error
        self._tokenizer = self._engine.get_tokenizer()
        if asyncio.iscoroutine(self._tokenizer):
            self._tokenizer = await self._tokenizer
        self._max_model_len = self._engine.model_config.max_model_len
        self._model_defaults = compat.default_sampling(self._engine)
        return Capabilities("vllm", compat.vllm_version, self._max_model_len)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        """See `Engine`."""
        params = sampling_params(request, self._model_defaults)
        ids = await self._tokenize(request)
        stream = self._engine.generate(
            compat.tokens_input(ids),
            params,
            str(next(self._ids)),
            lora_request=self._adapter(request.adapter),
            priority=request.priority,
            trace_headers=request.trace_headers or None,
        )
        try:
            async with aclosing(stream) as outputs:
                async for output in outputs:
                    yield _delta(output.outputs[0], len(ids))
        except Exception as error:
            raise _translate(error) from error

    async def _tokenize(self, request: GenerateRequest) -> list[int]:
        if len(request.prompt) > _LONG_PROMPT:
            ids = await asyncio.to_thread(self._tokenizer.encode, request.prompt)
        else:
            ids = self._tokenizer.encode(request.prompt)
        if (keep := request.sampling.truncate_prompt_tokens) is not None:
            ids = ids[-keep:]
        if len(ids) >= self._max_model_len:
            accepted = f"fewer than {self._max_model_len}, to leave room for an answer"
            raise RequestError(f"has {len(ids)} tokens", field="prompt", accepted=accepted)
        return list(ids)

    def _adapter(self, name: str) -> Any:
        if not name:
            return None
        try:
            return self._adapters[name]
        except KeyError:
            known = (
                ", ".join(self._adapters) or "none: option.enable_lora is off or adapters/ empty"
            )
            raise RequestError("is unknown", field="adapter", value=name, accepted=known) from None

    def stats(self) -> EngineStats:
        """See `Engine`."""
        # vLLM reports with each step; an idle engine makes none, so its last report is stale.
        unfinished = self._engine.output_processor.get_num_unfinished_requests()
        last = self._last_stats.value
        return EngineStats(
            running=min(last.running, unfinished),
            waiting=min(last.waiting, unfinished),
            kv_cache_usage=last.kv_cache_usage if unfinished else 0.0,
        )

    async def check_health(self) -> None:
        """See `Engine`."""
        try:
            await self._engine.check_health()
        except compat.VllmEngineDeadError as error:
            raise _translate(error) from error

    async def close(self) -> None:
        """See `Engine`."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)


def _delta(output: Any, num_prompt_tokens: int) -> Delta:
    reason = output.finish_reason
    return Delta(
        text=output.text,
        num_tokens=len(output.token_ids),
        # vLLM also ends answers it finds repetitive; clients know that as a stop.
        finish_reason="stop" if reason == "repetition" else reason,
        stop_reason=output.stop_reason,
        num_prompt_tokens=num_prompt_tokens,
    )


def _translate(error: Exception) -> LmiError:
    """Return our error for vLLM's, most specific first."""
    if isinstance(error, LmiError):
        return error
    if isinstance(error, compat.VllmEngineDeadError):
        return EngineDeadError(f"vLLM's engine core died: {error}")
    if isinstance(error, compat.EngineGenerateError):
        cause = error.__cause__
        if isinstance(cause, compat.VLLMClientError | ValueError):
            return RequestError(f"is refused by vLLM: {cause}", field="request")
        return EngineError(f"vLLM failed on this request: {cause or error}")
    if isinstance(error, compat.VLLMClientError | ValueError):
        return RequestError(f"is refused by vLLM: {error}", field="request")
    return EngineError(f"vLLM failed on this request: {type(error).__name__}: {error}")
