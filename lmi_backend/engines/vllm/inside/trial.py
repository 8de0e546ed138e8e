"""Try the fast paths of this vLLM before a client does: a made-up answer, with and without each.

The answer is played to copies of the engine whose core is not there. The text of its tokens comes
through vLLM's own output processor and server, once as vLLM has it and once for each path. A path
whose text differs is turned off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import (
    compat,
    fast_paths,
    idle,
    names,
    needs,
    output_hook,
    token_texts,
)
from lmi_backend.engines.vllm.inside.attempts import (
    SAME,
    attach_new_tokens,
    attach_nothing,
    attempt,
)
from lmi_backend.engines.vllm.inside.continuation import (
    Continuations,
    Continued,
    current,
    resume_strategy_of,
)
from lmi_backend.engines.vllm.inside.event_trial import (
    TOKENS,
    BodyServer,
    EventTrial,
    StreamPaths,
)
from lmi_backend.engines.vllm.inside.new_tokens import NewTokens
from lmi_backend.engines.vllm.inside.outputs import OutputReader
from lmi_backend.engines.vllm.inside.played import PlayedSink, play, played, together
from lmi_backend.errors import ConfigurationError
from lmi_backend.generation import Continuation, GenerateRequest
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from lmi_backend.generation import Delta

_log = logging.getLogger(__name__)

_TEXT: Final = "Once there was a small robot who lived by the sea, and it was happy there."
_TRIED: Final = (
    "output_hook", "new_tokens", "resumption", "direct_calls", "plain_stream", "parsed_stream",
    "known_chats", "short_chats",
)  # fmt: skip
_FIRST_SECONDS: Final = 120.0
"""For a token of a core that has started: much more than any takes."""
_KNOWN: Final = 4
"""Tokens that a resumed answer has already."""


class Trial:
    """The trials of one engine.

    Args:
        engine: the AsyncLLM.
        tokenizer: its; None if it has none.
        answer: of its server.
        paths: whose streams may be plain there.
        options: of its server, that the user gave.
        model: one of the names by which clients call it.
    """

    def __init__(
        self,
        engine: Any,
        tokenizer: Any,
        answer: BodyServer,
        paths: StreamPaths,
        options: Collection[str] = (),
        model: str = "",
    ) -> None:
        self._engine, self._has_texts = engine, tokenizer is not None
        ids = tokenizer.encode(_TEXT) if tokenizer is not None else range(TOKENS)
        self._ids = list(ids)[-TOKENS:]
        self._events = EventTrial(engine, self._ids, answer, paths, options, model)

    async def run(self) -> None:
        """Try each fast path that is in use, and turn off those that fail.

        Raises:
            ConfigurationError: the engine does not generate by its public way, either, or its
                answers, or its server's, cannot be counted.
        """
        try:
            await self._run()
        except ConfigurationError:
            raise
        except Exception as error:  # noqa: BLE001  nothing is known of them, then
            came = f"the trial failed: {type(error).__name__}: {error}"
            for name in _TRIED:
                fast_paths.turn_off(name, SAME, came)
            await self._generate_one()

    async def _generate_one(self) -> None:
        """Generate a token by the public way, if the trial could tell nothing.

        Raises:
            ConfigurationError: it does not work, either.
        """
        arguments = self._arguments(most=1)
        generating = output_hook.generate_publicly(self._engine, arguments, _reader(), PlayedSink())
        try:
            await asyncio.wait_for(generating, _FIRST_SECONDS)
        except asyncio.TimeoutError as error:
            what = f"AsyncLLM.generate gives no token in {_FIRST_SECONDS:.0f} s"
            raise needs.unservable(what) from error
        except Exception as error:
            what = f"AsyncLLM.generate raises {type(error).__name__}: {error}"
            raise needs.unservable(what) from error

    async def _run(self) -> None:
        theirs = await self._deltas(attach_nothing, is_hooked=False)
        if not any(ids for _text, ids, *_ in theirs):
            raise needs.unservable("the outputs of AsyncLLM.generate have no ids of their tokens")
        if self._has_texts and not any(text for text, *_ in theirs):
            raise needs.unservable("the outputs of AsyncLLM.generate have no text")
        await attempt("output_hook", theirs, lambda: self._deltas(attach_nothing))
        idle.turn_off_unused("output_hook")
        await attempt("new_tokens", theirs, self._taken)
        await attempt("new_tokens", [], self._differing_logprobs)
        await attempt("resumption", theirs[_KNOWN:], self._resumed)
        await self._events.run()
        # Its own engines were given outputs here, and not by vLLM.
        idle.forget_use("new_tokens")

    async def _deltas(
        self, hooks: Callable[[Any], object], *, is_hooked: bool = True, logprobs: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Return what each delta of an answer to `generate` tells."""
        engine, sink = played(self._engine, hooks=hooks), PlayedSink()
        generate = output_hook.generate if is_hooked else output_hook.generate_publicly
        answering = generate(engine, self._arguments(logprobs), _reader(logprobs), sink)
        playing = play(engine, self._ids, has_logprobs=logprobs is not None)
        await together(answering, playing)
        return _comparable(sink.chunks)

    async def _taken(self) -> list[tuple[Any, ...]]:
        """Return the deltas of an answer whose middle vLLM's output processor has not seen.

        Raises:
            LookupError: it has seen all of it.
        """
        made: list[NewTokens] = []
        deltas = await self._deltas(lambda engine: made.append(attach_new_tokens(engine)))
        if fast_paths.is_on("output_hook") and not made[0].num_taken:
            raise LookupError(
                "no output was taken: none has new tokens alone, or stop strings are unknown"
            )
        return deltas

    async def _differing_logprobs(self) -> list[tuple[Any, Any]]:
        """Return what deltas with log probabilities tell, where it is not what vLLM makes."""
        try:
            theirs = await self._deltas(attach_nothing, is_hooked=False, logprobs=0)
        except Exception as error:  # noqa: BLE001  other requests are answered
            _log.warning(
                "log probabilities cannot be tried, and requests that want them may fail: %s: %s",
                *(type(error).__name__, error),
            )
            return []
        if token_texts.is_unused():
            idle.turn_off_unused("token_texts")
        ours = await self._deltas(attach_new_tokens, logprobs=0)
        return [pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1]]

    async def _resumed(self) -> list[tuple[Any, ...]]:
        """Return the deltas of an answer whose first tokens are known already."""
        engine = played(self._engine, hooks=lambda engine: Continuations(engine).attach())
        sink = PlayedSink()
        known = b"".join(pack([token]) for token in self._ids[:_KNOWN])
        arguments = self._arguments()
        # A core that has to repeat them gets them in no prompt.
        skipped = (
            _KNOWN if resume_strategy_of(engine, arguments["params"]) == "from the prompt" else 0
        )

        async def resume() -> None:
            current.set(Continued(Continuation(known)))
            await output_hook.generate(engine, arguments, _reader(), sink)

        await together(asyncio.ensure_future(resume()), play(engine, self._ids, skipped))
        return _comparable(sink.chunks)

    def _arguments(self, logprobs: int | None = None, most: int = 2 * TOKENS) -> dict[str, Any]:
        kind = names.RequestOutputKind.DELTA
        params = names.SamplingParams(max_tokens=most, output_kind=kind, logprobs=logprobs)
        prompt = compat.prompt_of(list(self._ids))
        return {"request_id": "trial", "prompt": prompt, "params": params}


def _reader(logprobs: int | None = None) -> OutputReader:
    reader = OutputReader(None, GenerateRequest(prompt="", stream=True, logprobs=logprobs))
    reader.sends_ids = True
    return reader


def _comparable(deltas: Sequence[Delta]) -> list[tuple[Any, ...]]:
    return [
        (
            *(each.text, each.ids, each.finish_reason, each.tokens, each.cumulative_logprob),
            each.num_prompt_tokens,
        )
        for each in deltas
    ]
