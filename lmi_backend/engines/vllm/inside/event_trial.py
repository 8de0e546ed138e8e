"""Try the fast paths of vLLM's server: a made-up answer to a body, with and without each."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS
from lmi_backend.engines.vllm.inside import fast_paths, idle, needs, parsed_stream, plain_stream
from lmi_backend.engines.vllm.inside.attempts import (
    attach_new_tokens,
    attach_nothing,
    attempt,
    shown,
)
from lmi_backend.engines.vllm.inside.known_chats import ENOUGH
from lmi_backend.engines.vllm.inside.played import PlayedSink, play, played, together
from lmi_backend.engines.vllm.inside.server_compat import MESSAGES
from lmi_backend.generation import HttpRequest

_log = logging.getLogger(__name__)

TOKENS: Final = 9
_CREATED: Final = re.compile(rb'"created": ?\d+')
_FAULT: Final = 500
"""Lowest status of a fault that is the server's own."""
_SHOWN: Final = 800
_SOME_TIME: Final = b'"created":0'
_PLAIN: Final = {"stream": True, "max_tokens": TOKENS + 1, "temperature": 0}
_MESSAGES: Final = {"messages": [{"role": "user", "content": "a"}]}
_USAGE: Final = {"stream_options": {"include_usage": True}}
_COMPLETION: Final = {**_PLAIN, "prompt": "a"}
_BODIES: Final = (
    (CHATS, _PLAIN | _MESSAGES | _USAGE),
    (COMPLETIONS, _COMPLETION | _USAGE),
    (COMPLETIONS, _COMPLETION | {"stream_interval": 3}),
)
_AS_KNOWN: Final = ("is_direct", "is_plain", "is_known")
"""Arguments of `BodyServer`: each of these ways needs those before it."""
_WHOLE: Final = (
    ("whole_tool_calls", CHATS, b'"choices"'),
    ("prefill", MESSAGES, b'"content"'),
)
"""Fast paths that are called for each whole answer to a path, which has a member."""


class How(NamedTuple):
    """How a body was answered."""

    is_direct: bool
    """Whether its endpoint was called without the application."""
    is_plain: bool
    """Whether the middle of its answer was written without the server."""
    is_generated: bool
    """Whether the server has called `generate`, which counts tokens and checks grammars."""
    is_known: bool
    """Whether all of it was written as earlier answers were."""


class StreamPaths(NamedTuple):
    """Paths whose streams may be plain."""

    plain: Collection[str] = ()
    parsed: Collection[str] = ()
    """A parser of vLLM reads their texts, and decides which events there are."""


class BodyServer(Protocol):
    """Has vLLM's server answer a body."""

    async def __call__(
        self,
        request: HttpRequest,
        sink: Any,
        engine: Any,
        *,
        is_direct: bool,
        is_plain: bool,
        is_known: bool,
    ) -> How:
        """Answer a body by certain fast paths; return by which it was.

        Args:
            engine: generates the answer.
        """
        ...


class EventTrial:
    """The trials of one engine's server.

    Args:
        engine: the AsyncLLM.
        ids: of the tokens that are generated.
        answer: of its server.
        paths: whose streams may be plain there.
        options: of its server, that the user gave.
        model: one of the names by which clients call it; empty to leave it out.
    """

    def __init__(
        self,
        engine: Any,
        ids: Sequence[int],
        answer: BodyServer,
        paths: StreamPaths,
        options: Collection[str] = (),
        model: str = "",
    ) -> None:
        self._engine, self._ids, self._answer = engine, ids, answer
        self._paths, self._options = paths, options
        self._named = {"model": model} if model else {}

    async def run(self) -> None:
        """Try each body, and turn off the paths that answer otherwise, or not at all.

        Raises:
            ConfigurationError: the server's answers cannot be counted.
        """
        for path, body in _BODIES:
            await self._try_events(path, body)
        for name, path, member in _WHOLE:
            if fast_paths.is_on(name) and member in await self._whole(path):
                idle.turn_off_unused(name)

    async def _whole(self, path: str) -> bytes:
        """Return a whole answer to a path, or nothing if there is none."""
        request = self._request(path, _MESSAGES | {"max_tokens": TOKENS + 1})
        try:
            (data, *_), _how = await self._events(request)
        except Exception as error:  # noqa: BLE001  so its clients are answered, too
            _log.debug("%s: %s: %s", path, type(error).__name__, error)
            return b""
        return b"" if b'"error"' in data else data

    def _request(self, path: str, body: dict[str, Any]) -> HttpRequest:
        return HttpRequest(path, msgspec.json.encode(body | self._named), {"x-request-id": "trial"})

    async def _try_events(self, path: str, body: dict[str, Any]) -> None:
        request = self._request(path, body)
        theirs, how = await self._events(request)
        again, _ = await self._events(request)
        if not theirs[0].startswith(b"data:") or b'"error"' in theirs[0]:
            if again == theirs:
                await attempt("direct_calls", theirs, lambda: self._refusal(request, theirs))
            return
        if not how.is_generated:
            raise needs.unservable(f"its {path} generates by other means than AsyncLLM.generate")
        self._check_name(theirs[0])
        common, changing = plain_stream.common_and_changing([*theirs, *again])
        self._leave_out_plain(changing)
        if again != theirs:
            # So nothing can be said of its endpoints, either.
            fast_paths.turn_off(
                "plain_stream", "events that differ by their texts", shown(again, theirs)
            )
            return
        self._note_common(common, theirs)

        async def directly() -> list[bytes]:
            ours, how = await self._events(request, "is_direct")
            if not how.is_direct:
                raise LookupError(f"the endpoint of {path} was not called")
            return ours

        async def plainly() -> list[bytes]:
            ours, how = await self._events(request, "is_direct", "is_plain")
            if not how.is_plain and path in self._paths.plain:
                raise LookupError(f"no event is a template: {_beginning(theirs)}")
            return ours

        async def as_known() -> list[bytes]:
            for _ in range(ENOUGH + 1):
                ours, how = await self._events(request, *_AS_KNOWN)
                if how.is_known:
                    return ours
            raise LookupError(f"nothing can be learnt from {_beginning(theirs)}")

        await attempt("direct_calls", theirs, directly)
        if path in self._paths.parsed:
            await attempt(parsed_stream.NAME, theirs, plainly)
            if how.is_generated and fast_paths.is_on("direct_calls"):
                idle.turn_off_unused(parsed_stream.NAME)
            return
        await attempt("plain_stream", theirs, plainly)
        is_plain = fast_paths.is_on("direct_calls") and fast_paths.is_on("plain_stream")
        if is_plain and path == CHATS and path in self._paths.plain:
            await attempt("known_chats", theirs, as_known)

    def _note_common(self, common: plain_stream.Members, events: Sequence[bytes]) -> None:
        """Note the further members of all events; turn the template off if they may change."""
        unsure = [name for name, value in common if not plain_stream.is_same_in_all(name, value)]
        self._leave_out_plain(unsure)
        if unsure:
            came = f"{', '.join(sorted(unsure))} in {_beginning(events)}"
            fast_paths.turn_off("plain_stream", "events that tell a text and nothing else", came)
        plain_stream.further |= common

    async def _refusal(self, request: HttpRequest, theirs: list[bytes]) -> list[bytes]:
        """Return what a body that is refused is answered without the application.

        Args:
            theirs: what the application says, which is returned if it must.
        """
        ours, how = await self._events(request, "is_direct")
        return ours if how.is_direct else theirs

    def _check_name(self, event: bytes) -> None:
        """Turn off the model's name in answers, if an event has another one than the body."""
        if self._named and msgspec.json.encode(self._named)[1:-1] not in event.replace(b": ", b":"):
            came = f"the body names {self._named['model']!r}, and {event.decode()} came"
            fast_paths.turn_off("asked_name", "answers with the name in their body", came)

    def _leave_out_plain(self, changing: Collection[str]) -> None:
        """Leave out the template of events for an option that has members change with each event.

        vLLM names such options after the member: `enable_force_include_usage`.
        """
        asked = [(each, name) for each in self._options for name in changing if name in each]
        for option, name in asked:
            fast_paths.leave_out("plain_stream", f"{option} puts {name} into each event")

    async def _events(self, request: HttpRequest, *by: str) -> tuple[list[bytes], How]:
        """Return the events of an answer by certain fast paths, and how it was made."""
        takes = fast_paths.is_on("new_tokens") and "is_plain" in by
        engine = played(self._engine, hooks=attach_new_tokens if takes else attach_nothing)
        sink = PlayedSink()
        answering = asyncio.ensure_future(
            self._answer(request, sink, engine, **{name: name in by for name in _AS_KNOWN})
        )
        await together(answering, play(engine, self._ids))
        data = b"".join(chunk.data for chunk in sink.chunks)
        if sink.chunks and sink.chunks[0].status >= _FAULT:
            _log.warning("vLLM's server fails for %s: %s", request.path, data.decode()[:_SHOWN])
        return _CREATED.sub(_SOME_TIME, data).split(b"\n\n"), answering.result()


def _beginning(events: Sequence[bytes]) -> str:
    """Return the first events; one of them tells a text."""
    return b" ".join(events[:3]).decode()[:_SHOWN]
