"""Try the fast paths of this vLLM before a client does: a made-up answer, with and without each.

The answer is played to copies of the engine whose core is not there. The text of its tokens comes
through vLLM's own output processor and server, once as vLLM has it and once for each path. A path
whose text differs is turned off.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS
from lmi_backend.engines.vllm.inside import (
    compat,
    fast_paths,
    names,
    needs,
    output_hook,
    plain_stream,
)
from lmi_backend.engines.vllm.inside.continuation import (
    Continuations,
    Continued,
    current,
    resume_strategy_of,
)
from lmi_backend.engines.vllm.inside.new_tokens import NewTokens
from lmi_backend.engines.vllm.inside.outputs import OutputReader
from lmi_backend.engines.vllm.inside.played import PlayedSink, play, played, together
from lmi_backend.generation import Continuation, GenerateRequest, HttpRequest
from lmi_backend.token_ids import pack

if TYPE_CHECKING:
    from lmi_backend.generation import Delta

_log = logging.getLogger(__name__)

_TEXT: Final = "Once there was a small robot who lived by the sea, and it was happy there."
_TOKENS: Final = 9
_KNOWN: Final = 4
"""Tokens that a resumed answer has already."""
_CREATED: Final = re.compile(rb'"created": ?\d+')
_SOME_TIME: Final = b'"created":0'
_PLAIN: Final = {"stream": True, "max_tokens": _TOKENS + 1, "temperature": 0}
_CHAT: Final = {**_PLAIN, "messages": [{"role": "user", "content": "a"}]}
_COMPLETION: Final = {**_PLAIN, "prompt": "a"}
_BODIES: Final = (
    (CHATS, _CHAT),
    (COMPLETIONS, _COMPLETION | {"stream_options": {"include_usage": True}}),
    (COMPLETIONS, _COMPLETION | {"stream_interval": 3}),
)
_SHOWN: Final = 400
_SAME: Final = "the same answer as without it"


def _attach_new_tokens(engine: Any) -> NewTokens:
    found = NewTokens(engine, names.EngineCoreOutput(request_id="", new_token_ids=[]))
    found.attach()
    return found


def _attach_nothing(_: Any) -> None:
    pass


class BodyServer(Protocol):
    """Has vLLM's server answer a body."""

    async def __call__(
        self, request: HttpRequest, sink: Any, engine: Any, *, is_direct: bool, is_plain: bool
    ) -> bool:
        """Answer a body by certain fast paths; return whether its middle was written without it.

        Args:
            engine: generates the answer.
        """
        ...


class Trial:
    """The trials of one engine.

    Args:
        engine: the AsyncLLM.
        tokenizer: its; None if it has none.
        answer: of its server.
        plain_paths: whose streams may be plain there.
        options: of its server, that the user gave.
    """

    def __init__(
        self,
        engine: Any,
        tokenizer: Any,
        answer: BodyServer,
        plain_paths: Collection[str],
        options: Collection[str] = (),
    ) -> None:
        self._engine, self._answer, self._plain_paths = engine, answer, plain_paths
        self._options = options
        ids = tokenizer.encode(_TEXT) if tokenizer is not None else range(_TOKENS)
        self._ids = list(ids)[-_TOKENS:]

    async def run(self) -> None:
        """Try each fast path that is in use, and turn off those that fail.

        Raises:
            ConfigurationError: the engine does not generate by its public way, either.
        """
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001  nothing is known of them, then
            came = f"the trial failed: {type(error).__name__}: {error}"
            for name in ("output_hook", "new_tokens", "resumption", "direct_calls", "plain_stream"):
                fast_paths.turn_off(name, _SAME, came)
            await self._generate_one()

    async def _generate_one(self) -> None:
        """Generate a token by the public way, if the trial could tell nothing.

        Raises:
            ConfigurationError: it does not work, either.
        """
        arguments = self._arguments()
        arguments["params"].max_tokens = 1
        try:
            await output_hook.generate_publicly(self._engine, arguments, _reader(), PlayedSink())
        except Exception as error:
            what = f"AsyncLLM.generate raises {type(error).__name__}: {error}"
            raise needs.unservable(what) from error

    async def _run(self) -> None:
        theirs = await self._deltas(_attach_nothing, is_hooked=False)
        await self._try("output_hook", theirs, lambda: self._deltas(_attach_nothing))
        await self._try("new_tokens", theirs, self._taken)
        await self._try("new_tokens", [], self._differing_logprobs)
        await self._try("resumption", theirs[_KNOWN:], self._resumed)
        for path, body in _BODIES:
            await self._try_events(path, body)

    async def _try_events(self, path: str, body: dict[str, Any]) -> None:
        request = HttpRequest(path, msgspec.json.encode(body), {"x-request-id": "trial"})
        theirs, _ = await self._events(request)
        again, _ = await self._events(request)
        if not theirs[0].startswith(b"data:") or b'"error"' in theirs[0]:
            return  # this model does not answer such bodies
        common, changing = plain_stream.common_and_changing([*theirs, *again])
        self._leave_out_plain(changing)
        if again != theirs:
            # So nothing can be said of its endpoints, either.
            fast_paths.turn_off(
                "plain_stream", "events that differ by their texts", _shown(again, theirs)
            )
            return
        unsure = [name for name, value in common if not plain_stream.is_same_in_all(name, value)]
        self._leave_out_plain(unsure)
        if unsure:
            came = f"{', '.join(sorted(unsure))} in {theirs[2].decode()}"
            fast_paths.turn_off("plain_stream", "events that tell a text and nothing else", came)
        plain_stream.further |= common

        async def directly() -> list[bytes]:
            return (await self._events(request, is_direct=True))[0]

        async def plainly() -> list[bytes]:
            ours, is_plain = await self._events(request, is_direct=True, is_plain=True)
            if not is_plain and path in self._plain_paths:
                raise LookupError(f"no event is a template: {theirs[2].decode()}")
            return ours

        await self._try("direct_calls", theirs, directly)
        await self._try("plain_stream", theirs, plainly)

    def _leave_out_plain(self, changing: Collection[str]) -> None:
        """Leave out the template of events for an option that has members change with each event.

        vLLM names such options after the member: `enable_force_include_usage`.
        """
        asked = [(each, name) for each in self._options for name in changing if name in each]
        for option, name in asked:
            fast_paths.leave_out("plain_stream", f"{option} puts {name} into each event")

    async def _events(
        self, request: HttpRequest, *, is_direct: bool = False, is_plain: bool = False
    ) -> tuple[list[bytes], bool]:
        """Return the events of an answer, and whether its middle was written without the server."""
        takes = fast_paths.is_on("new_tokens") and is_plain
        engine = played(self._engine, hooks=_attach_new_tokens if takes else _attach_nothing)
        sink = PlayedSink()
        answering = asyncio.ensure_future(
            self._answer(request, sink, engine, is_direct=is_direct, is_plain=is_plain)
        )
        await together(answering, play(engine, self._ids))
        data = b"".join(chunk.data for chunk in sink.chunks)
        return _CREATED.sub(_SOME_TIME, data).split(b"\n\n"), answering.result()

    async def _try(self, name: str, expected: Any, does: Callable[[], Awaitable[Any]]) -> None:
        if not fast_paths.is_on(name):
            return
        try:
            made = await does()
        except Exception as error:  # noqa: BLE001  whatever it is, the path does not work
            fast_paths.turn_off(name, _SAME, f"{type(error).__name__}: {error}")
            return
        if made != expected:
            fast_paths.turn_off(name, _SAME, _shown(made, expected))

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
        deltas = await self._deltas(lambda engine: made.append(_attach_new_tokens(engine)))
        if fast_paths.is_on("output_hook") and not made[0].num_taken:
            raise LookupError(
                "no output was taken: none has new tokens alone, or stop strings are unknown"
            )
        return deltas

    async def _differing_logprobs(self) -> list[tuple[Any, Any]]:
        """Return what deltas with log probabilities tell, where it is not what vLLM makes."""
        try:
            theirs = await self._deltas(_attach_nothing, is_hooked=False, logprobs=0)
        except Exception as error:  # noqa: BLE001  so its core gives others, which are not read
            _log.debug("no log probabilities are tried: %s: %s", type(error).__name__, error)
            return []
        ours = await self._deltas(_attach_new_tokens, logprobs=0)
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

    def _arguments(self, logprobs: int | None = None) -> dict[str, Any]:
        kind = names.RequestOutputKind.DELTA
        params = names.SamplingParams(max_tokens=2 * _TOKENS, output_kind=kind, logprobs=logprobs)
        prompt = compat.prompt_of(list(self._ids))
        return {"request_id": "trial", "prompt": prompt, "params": params}


def _shown(made: Sequence[Any], expected: Sequence[Any]) -> str:
    """Return the first part of an answer that differs."""
    pairs = zip(made, expected, strict=False)
    ours, theirs = next((pair for pair in pairs if pair[0] != pair[1]), (made, expected))
    return f"{ours!r} and not {theirs!r}"[:_SHOWN]


def _reader(logprobs: int | None = None) -> OutputReader:
    reader = OutputReader(None, GenerateRequest(prompt="", stream=True, logprobs=logprobs))
    reader.sends_ids = True
    return reader


def _comparable(deltas: Sequence[Delta]) -> list[tuple[Any, ...]]:
    return [
        (each.text, each.ids, each.finish_reason, each.tokens, each.cumulative_logprob)
        for each in deltas
    ]
