"""The engine as vLLM's server sees it: what it generates is counted, and checked before."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import (
    embedding_lessons,
    extra_arguments,
    names,
    seeded_steps,
)
from lmi_backend.engines.vllm.inside.answer import Generation, answers, earlier_outputs
from lmi_backend.engines.vllm.inside.chat_lessons import lessons
from lmi_backend.engines.vllm.inside.outputs import NOTHING_FITS, length
from lmi_backend.engines.vllm.inside.shown_prompt import ShownPrompt
from lmi_backend.errors import RequestError
from lmi_backend.structures import StructureBounds, check_structures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from lmi_backend.engines.vllm.inside.grammars import GrammarTrials
    from lmi_backend.engines.vllm.lora import LoraAdapters

_OWN_SIZE: Final = 4
_OWN_DEPTH: Final = 16
"""Of what vLLM writes around a client's schema, or makes of a grammar: times, and levels."""


class CountingClient:
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
        self._engine, self._bounds, self._grammars = engine, _wrapped(bounds), grammars
        self._adapters = adapters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _check_adapter(self, adapter: Any) -> None:
        """Refuse an adapter that nobody has looked at: see `LoraAdapters.hold`."""
        if adapter is not None and not self._adapters.is_loaded(adapter.lora_name):
            problem = "the body names its model in a way that cannot be read before"
            raise names.VLLMClientError(f"{problem}; accepted: JSON without NaN and Infinity")

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        self._check_adapter(kwargs.get("lora_request"))
        lesson = embedding_lessons.lessons.get()
        if lesson is None:
            return self._engine.encode(*args, **kwargs)
        return lesson.encoded(self._engine.encode, args, kwargs)

    async def generate(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        params, answer, lesson = _params(args, kwargs), answers.get(), lessons.get()
        self._check_adapter(kwargs.get("lora_request"))
        await _check(params, self._bounds, self._grammars)
        engine = answer.engine if answer else self._engine
        generation = Generation(engine, answer, params) if answer else None
        shown = ShownPrompt(
            params,
            args[0] if args else kwargs.get("prompt"),
            is_all=answer is not None and answer.shows_prompt_only,
            is_shown=answer is not None and answer.shows_prompt,
        )
        may_fit_nothing = getattr(params, "structured_outputs", None) is not None
        if lesson is not None:
            lesson.note_call(args, kwargs, params)
        # Closed with this one: closing is the abort.
        async with aclosing(engine.generate(*args, **kwargs)) as outputs:
            async for output in outputs:
                shown.mend(output)
                if may_fit_nothing:
                    may_fit_nothing = _has_no_token(output)
                for earlier in earlier_outputs(generation):
                    yield earlier
                if generation is not None:
                    generation.count(output)
                if lesson is not None:
                    lesson.note_output(output)
                yield output
                if generation is not None:
                    generation.sent(output)


def _has_no_token(output: Any) -> bool:
    """Tell whether an answer with structured outputs has no token yet.

    Raises:
        VLLMClientError: none fits them; vLLM's server would call it a fault of its own.
    """
    answers_of_it = getattr(output, "outputs", ())
    # vLLM hands on the token that it has refused.
    if any(each.finish_reason == "error" for each in answers_of_it):
        raise names.VLLMClientError(f"structured_outputs {NOTHING_FITS}")
    return not any(length(each.token_ids) for each in answers_of_it)


def _params(args: Any, kwargs: Mapping[str, Any]) -> Any:
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
