"""The engine as vLLM's server sees it: what it generates is counted, and checked before."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import extra_arguments, names, seeded_steps
from lmi_backend.engines.vllm.inside.answer import Call, Counted, current_answer
from lmi_backend.engines.vllm.inside.outputs import length, unfit
from lmi_backend.engines.vllm.inside.replay import ReplayedAnswer, current_replay
from lmi_backend.engines.vllm.inside.shown_prompt import ShownPrompt
from lmi_backend.errors import RequestError
from lmi_backend.structures import StructureBounds, check_structures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from lmi_backend.engines.vllm.inside.answer import BodyAnswer
    from lmi_backend.engines.vllm.inside.grammars import GrammarTrials
    from lmi_backend.engines.vllm.lora import LoraAdapters

_OWN_SIZE: Final = 4
_OWN_DEPTH: Final = 16
"""Of what vLLM writes around a client's schema, or makes of a grammar: times, and levels."""


class EngineClient:
    """The engine, whose generated tokens are counted for the HTTP request they belong to.

    All calls of vLLM's server come through here, so what it compiles is checked too.
    """

    def __init__(
        self,
        engine: Any,
        bounds: StructureBounds,
        grammars: GrammarTrials,
        adapters: LoraAdapters,
    ) -> None:
        self.engine, self._bounds, self._grammars = engine, _wrapped(bounds), grammars
        self._adapters = adapters

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def _check_adapter(self, adapter: Any) -> None:
        """Refuse an adapter that nobody has looked at: see `LoraAdapters.hold`."""
        if adapter is not None and not self._adapters.is_loaded(adapter.lora_name):
            problem = "the body names its model in a way that cannot be read before"
            raise names.VLLMClientError(f"{problem}; accepted: JSON without NaN and Infinity")

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        self._check_adapter(kwargs.get("lora_request"))
        return self.engine.encode(*args, **kwargs)

    async def check(self, params: Any, named: dict[str, Any]) -> None:
        """Raise for what the engine must not get.

        Raises:
            VLLMClientError: a client may be told.
        """
        self._check_adapter(named.get("lora_request"))
        await _check(params, self._bounds, self._grammars)

    def generate(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        answer = current_answer.get()
        if answer is not None:
            answer.num_calls += 1
            # One of several is no whole answer.
            is_alone = answer.num_calls == 1
            answer.call = Call(self, answer, args, kwargs) if is_alone else None
        return self._generate(answer, args, kwargs)

    async def _generate(
        self, answer: BodyAnswer | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        params = _params(args, kwargs)
        await self.check(params, kwargs)
        counted = Counted(self.engine, answer, params) if answer else None
        shown = ShownPrompt(
            params,
            args[0] if args else kwargs.get("prompt"),
            is_all=answer is not None and answer.shows_prompt_only,
            is_shown=answer is not None and answer.shows_prompt,
        )
        is_structured, num_tokens = getattr(params, "structured_outputs", None) is not None, 0
        resumed = None
        if answer is not None and answer.continuation is not None and answer.num_calls == 1:
            resumed = ReplayedAnswer(self.engine, answer.continuation)
            current_replay.set(resumed)
        # Closed with this one: closing is the abort.
        async with aclosing(self.engine.generate(*args, **kwargs)) as outputs:
            async for output in outputs:
                shown.mend(output)
                if is_structured:
                    num_tokens = _fitting(output, num_tokens)
                for earlier in _replayed(resumed, counted):
                    yield earlier
                if counted is not None:
                    counted.count(output)
                yield output


def _replayed(resumed: ReplayedAnswer | None, counted: Counted | None) -> Iterator[Any]:
    """Yield the outputs of the tokens that the client of a resumed request has, once.

    Raises:
        EngineError: it does not resume.
    """
    if resumed is None:
        return
    resumed.check_begun()
    while resumed.outputs:
        output = resumed.outputs.popleft()
        if counted is not None:
            counted.count(output, is_known=True)
        yield output


def _fitting(output: Any, num_tokens: int) -> int:
    """Return how many tokens of an answer with structured outputs fit them by now.

    Raises:
        VLLMClientError: the next one does not; vLLM's server would call it a fault of its own.
    """
    for each in getattr(output, "outputs", ()):
        num_new = length(each.token_ids)
        if each.finish_reason == "error":
            raise names.VLLMClientError(f"structured_outputs {unfit(num_tokens, num_new)}")
        num_tokens += num_new
    return num_tokens


def _params(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return kwargs.get("sampling_params", args[1] if len(args) > 1 else None)


def _wrapped(bounds: StructureBounds) -> StructureBounds:
    """Return the bounds of what vLLM makes of a client's schemas: it puts them into its own."""
    return replace(
        bounds,
        size=_OWN_SIZE * bounds.size,
        depth=bounds.depth + _OWN_DEPTH,
        repeats=_OWN_SIZE * bounds.repeats,
    )


async def _check(params: Any, bounds: StructureBounds, grammars: GrammarTrials) -> None:
    """Check what may end the core, and what will be compiled, made of any field of a body."""
    structures = getattr(params, "structured_outputs", None)
    try:
        extra_arguments.check(params)
        seeded_steps.check(params)
        if structures is None:
            return
        given = {name: value for name, value in vars(structures).items() if value is not None}
        check_structures(given, bounds)
        await grammars.check(params)
    except RequestError as error:
        raise names.VLLMClientError(str(error)) from error
