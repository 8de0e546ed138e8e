"""Requests that the continuous batch cannot take: one after the other, through `generate`.

While a batch runs too, both take turns: one token here, one step there.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria

from lmi_backend.engines.steps import StepOutput, given_groups
from lmi_backend.errors import EngineError, LmiError
from lmi_backend.generation import GenerateRequest, Token

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from lmi_backend.engines.transformers.batched import ContinuousBatch
    from lmi_backend.engines.transformers.loading import Loaded, PeftAdapters


class Solo:
    """Generates for one request at a time, in a thread."""

    def __init__(
        self, loaded: Loaded, batch: ContinuousBatch | None, adapters: PeftAdapters
    ) -> None:
        self._loaded, self._batch, self._adapters = loaded, batch, adapters
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lmi-solo")

    def submit(
        self,
        ids: list[int],
        request: GenerateRequest,
        config: Any,
        on_step: Callable[[StepOutput], None],
        loop: asyncio.AbstractEventLoop,
    ) -> Callable[[], None]:
        """Start a request; return a function that cancels it.

        Args:
            on_step: called inside the event loop.
        """
        cancelled = threading.Event()

        def report(step: StepOutput) -> None:
            if not cancelled.is_set():
                loop.call_soon_threadsafe(on_step, step)

        def work() -> None:
            if cancelled.is_set():
                return
            try:
                self._generate(ids, request, config, report, cancelled)
            except LmiError as error:
                report(StepOutput(error=error))
            except Exception as error:  # noqa: BLE001  one request must not end the others
                message = f"Transformers failed on this request: {type(error).__name__}: {error}"
                report(StepOutput(error=EngineError(message)))

        self._thread.submit(work)
        return cancelled.set

    def between(self, change: Callable[[], None]) -> None:
        """Change the model while nobody uses it; blocks until it is done."""

        def work() -> None:
            with _paused(self._batch):
                change()

        self._thread.submit(work).result()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _generate(
        self,
        ids: list[int],
        request: GenerateRequest,
        config: Any,
        report: Callable[[StepOutput], None],
        cancelled: threading.Event,
    ) -> None:
        turns = _Turns(self._batch, self._adapters, request.adapter)
        inputs = torch.tensor([ids], device=self._loaded.device)  # [1, prompt tokens]
        with turns, torch.inference_mode():
            if request.sampling.seed is not None:
                torch.manual_seed(request.sampling.seed)
            tokens = _Tokens(self._loaded.tokenizer, request)
            if request.prompt_logprobs is not None and not self._loaded.is_seq2seq:
                report(
                    StepOutput(
                        prompt_tokens=tokens.of_prompt(self._loaded.model(inputs).logits[0], ids)
                    )
                )
            prefix = 1 if self._loaded.is_seq2seq else len(ids)
            on_token = _OnToken(tokens, turns, report, cancelled)
            made = self._loaded.model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=config,
                logits_processor=LogitsProcessorList(
                    [_Penalties(request, prefix), tokens, _GivenTokens(request, prefix)]
                ),
                stopping_criteria=[on_token],
            )
        # made is [1, tokens]; of several beams only the best comes back.
        rest = made[0, prefix + on_token.count :].tolist()
        report(StepOutput(ids=[each for each in rest if each != config.pad_token_id], is_over=True))


def _paused(batch: ContinuousBatch | None) -> AbstractContextManager[None]:
    """Return a context in which the batch makes no step, so that the model is free."""
    return batch.pause() if batch is not None else nullcontext()


class _Turns:
    """Holds the model for a solo request, and lets the batch have it after each token."""

    def __init__(self, batch: ContinuousBatch | None, adapters: PeftAdapters, adapter: str) -> None:
        self._batch, self._adapters, self._adapter = batch, adapters, adapter

    def __enter__(self) -> None:
        self._pause = _paused(self._batch)
        self._pause.__enter__()
        try:
            self._adapters.use(self._adapter)
        except BaseException:
            # Else the batch would wait for ever.
            self._pause.__exit__(None, None, None)
            raise

    def __exit__(self, *error: Any) -> None:
        self._adapters.use("")
        self._pause.__exit__(*error)

    def yield_turn(self) -> None:
        """Let the batch make a step; the random numbers it draws do not change this request's."""
        if self._batch is None:
            return
        state = torch.get_rng_state()
        self.__exit__(None, None, None)
        self.__enter__()
        torch.set_rng_state(state)


class _Tokens(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Remembers the probabilities a token is chosen from, before they are cut and scaled."""

    def __init__(self, tokenizer: Any, request: GenerateRequest) -> None:
        self._tokenizer = tokenizer
        self.is_wanted = request.logprobs is not None
        self._alternatives = request.logprobs or 0
        self._prompt_alternatives = request.prompt_logprobs or 0
        self._special = frozenset(tokenizer.all_special_ids)
        self._logprobs: Any = None
        """Of the token that is chosen next: [vocabulary]."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        # scores is [beams, vocabulary].
        if self.is_wanted:
            self._logprobs = torch.log_softmax(scores[0].float(), dim=-1)
        return scores

    def of_answer(self, token_id: int) -> Token:
        return self._token(token_id, self._logprobs, self._alternatives)

    def of_prompt(self, logits: Any, ids: list[int]) -> tuple[Token, ...]:
        """Return the tokens of a prompt, from its logits: [prompt tokens, vocabulary]."""
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        first = Token(ids[0], self._text(ids[0]), is_special=ids[0] in self._special)
        pairs = zip(ids[1:], logprobs, strict=False)
        return (first, *(self._token(each, row, self._prompt_alternatives) for each, row in pairs))

    def _token(self, token_id: int, logprobs: Any, alternatives: int) -> Token:
        """Return a token, from the log probabilities at its position: [vocabulary]."""
        own = logprobs[token_id]
        best = torch.topk(logprobs, min(alternatives, len(logprobs))) if alternatives else None
        top = zip(best.indices.tolist(), best.values.tolist(), strict=True) if best else ()
        return Token(
            token_id,
            self._text(token_id),
            own.item(),
            int((logprobs > own).sum().item()) + 1,
            is_special=token_id in self._special,
            top=tuple(
                Token(each, self._text(each), value, rank, is_special=each in self._special)
                for rank, (each, value) in enumerate(top, start=1)
            ),
        )

    def _text(self, token_id: int) -> str:
        text: str = self._tokenizer.decode([token_id])
        return text


class _Penalties(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """OpenAI's presence and frequency penalty, over the tokens of the answer."""

    def __init__(self, request: GenerateRequest, prefix: int) -> None:
        self._presence = request.sampling.presence_penalty or 0.0
        self._frequency = request.sampling.frequency_penalty or 0.0
        self._prefix = prefix

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if not self._presence and not self._frequency:
            return scores
        counts = torch.zeros_like(scores)  # [beams, vocabulary]
        answer = input_ids[:, self._prefix :]  # [beams, answer tokens]
        counts.scatter_add_(1, answer, torch.ones_like(answer, dtype=scores.dtype))
        return scores - self._frequency * counts - self._presence * (counts > 0)


class _GivenTokens(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Has a request that resumes choose the tokens again that its client has.

    So its generator, and all that counts its tokens, come to where they were.
    """

    def __init__(self, request: GenerateRequest, prefix: int) -> None:
        self._ids = list(chain.from_iterable(given_groups(request)))
        self._prefix = prefix

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        # input_ids is [1, tokens], scores [1, vocabulary].
        step = input_ids.shape[1] - self._prefix
        if step >= len(self._ids):
            return scores
        forced = torch.full_like(scores, -math.inf)
        forced[:, self._ids[step]] = 0.0
        return forced


class _OnToken(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Called after each token: reports it, and stops where the request was cancelled."""

    def __init__(
        self,
        tokens: _Tokens,
        turns: _Turns,
        report: Callable[[StepOutput], None],
        cancelled: threading.Event,
    ) -> None:
        self._tokens, self._turns, self._report = tokens, turns, report
        self._cancelled = cancelled
        self.count = 0

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        # input_ids is [beams, tokens]. Beams are revised until the end, so only that is reported.
        if input_ids.shape[0] == 1:
            token_id = int(input_ids[0, -1])
            tokens = (self._tokens.of_answer(token_id),) if self._tokens.is_wanted else ()
            self._report(StepOutput((token_id,), tokens))
            self.count += 1
        self._turns.yield_turn()
        return torch.full((input_ids.shape[0],), self._cancelled.is_set(), device=input_ids.device)
