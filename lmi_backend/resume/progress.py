"""What is kept of an answer, so that another process can resume with it.

A request that is sent to another worker does not pull its prompt's KV blocks again. With
disaggregated prefill the first worker pulls them from the worker that computed the prompt, which
then frees them: by now they may be another request's. So the next worker computes the prompt
itself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from msgspec.structs import replace

from lmi_backend.clients.lmi import INVOCATIONS
from lmi_backend.clients.request import model_named, wanted
from lmi_backend.clients.responses import PATH as RESPONSES
from lmi_backend.clients.responses import EventNames
from lmi_backend.errors import RequestError
from lmi_backend.generation import Continuation, Delta, GenerateRequest, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import delta_of
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from lmi_backend.engine_config import Identity
    from lmi_backend.generation import Chunk


_MEMBER: Final = "do_remote_prefill"
_OWNER: Final = "kv_transfer_params"
_OUTER: Final = frozenset({_OWNER, "extra_args", "vllm_xargs", "sampling_params"})
"""Members in which vLLM looks for it: a client's tool may have a property of the same name."""


def pulls_nothing(work: GenerateRequest | HttpRequest) -> GenerateRequest | HttpRequest:
    """Return a request that pulls no KV blocks; the same one if it did not."""
    if isinstance(work, HttpRequest):
        # To look for the name alone is fast; most bodies have none.
        if _MEMBER.encode() not in work.body:
            return work
        try:
            body = json.loads(work.body)
        except (ValueError, RecursionError):  # no engine reads it either
            return work
        changed = _off(body)
        return work if changed == body else replace(work, body=json.dumps(changed).encode())
    extra = _off(work.sampling.extra)
    if extra == work.sampling.extra:
        return work
    return replace(work, sampling=replace(work.sampling, extra=extra))


def _off(value: Any, owner: str = "") -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        name: False
        if (owner, name) == (_OWNER, _MEMBER)
        else _off(item, name)
        if name in _OUTER
        else item
        for name, item in value.items()
    }


_HEAD_BYTES: Final = 1024
"""An event's id has up to 128 letters of a client's, each perhaps escaped."""


class Progress:
    """What is kept of a request that may resume elsewhere.

    Args:
        message: the request, perhaps to resume from somewhere.
        width: answers it will have; 0 to count them when it matters.
        hands_on: whether the receiver of the chunks keeps the ids of their tokens too.
    """

    def __init__(
        self, message: msg.Submit | msg.SubmitHttp, width: int, *, hands_on: bool = False
    ) -> None:
        self._message, self._width, self._hands_on = message, width, hands_on
        continuation = _work(message)[0].continuation
        self.has_begun = continuation is not None
        """Whether anything of its answer came."""
        where = continuation or Continuation(b"")
        self.ids = bytearray(where.ids)
        self._is_complete = True
        """Whether the ids of all its tokens came."""
        self._num_lines, self._head = where.num_lines, where.head
        self._num_cached = where.num_cached_tokens
        self._cumulative_logprob = where.cumulative_logprob
        self._packed = b""
        """The latest delta, if it came in columns."""
        self._is_body = isinstance(message, msg.SubmitHttp)
        is_response = isinstance(message, msg.SubmitHttp) and message.request.path == RESPONSES
        self._names = EventNames(where.names) if is_response else None
        self._identity: Identity | None = None
        self.is_acknowledged = False
        """Whether anything came from the process that has it now."""
        self.times = 0
        """It has resumed so often because a process died."""
        self.strikes = 0
        """Deaths of processes that it may have caused."""

    @property
    def size(self) -> int:
        return len(self.ids)

    @property
    def can_continue(self) -> bool:
        """Whether another worker can resume."""
        if not self.has_begun:
            return True
        if self._names is not None:
            # Its first events come before the first token.
            return self._is_complete and self._names.are_few
        return self._is_complete and bool(self.ids) and self._num_answers() == 1

    @property
    def model(self) -> str | None:
        if isinstance(self._message, msg.SubmitHttp):
            return model_named(self._message.request)
        return self._message.requests[0].adapter

    def meet(self, identity: Identity) -> str:
        """Note the identity of the process that gets the request now.

        Returns why the answer cannot be resumed there; empty if it can.
        """
        if self._identity is None or not self.has_begun:
            # The whole answer will be this process's, or its client has compared them.
            self._identity = identity
            return ""
        return _difference(self._identity, identity, self.model)

    def add(self, chunk: Chunk) -> bool:
        """Keep what a chunk tells about where to resume; it is not handed on unless requested.

        Returns whether it is the first from this worker.
        """
        if ids := chunk.ids:
            self.ids += ids
            if not self._hands_on:
                chunk.ids = b""
        elif chunk.num_tokens:
            self._is_complete = False
        if chunk.__class__ is Delta:
            self._cumulative_logprob, self._packed = chunk.cumulative_logprob, b""
        else:
            self._note(chunk.data)  # type: ignore[union-attr]
        if self.is_acknowledged:
            return False
        if not self.has_begun:
            self._num_cached = chunk.num_cached_tokens
        return self._begin(b"" if chunk.__class__ is Delta else chunk.data)  # type: ignore[union-attr]

    def pass_event(self, data: bytes, ids: bytes) -> bool:
        """Add an event, whose ids the caller hands on; return as `add` does."""
        self.ids += ids
        if self._is_body:
            self._note(data)
        else:
            self._packed = data
        return not self.is_acknowledged and self._begin(data if self._is_body else b"")

    def _note(self, data: bytes) -> None:
        """Keep what some bytes of an answer tell about where it is."""
        self._num_lines += data.count(b"\n")
        if self._names is not None:
            self._names.add(data)

    def _begin(self, data: bytes) -> bool:
        """Note the first chunk from a worker."""
        if not self.has_begun:
            self._head = data[:_HEAD_BYTES]
        self.has_begun = self.is_acknowledged = True
        return True

    def message(self, request_id: int) -> msg.Submit | msg.SubmitHttp:
        return replace(resumed(self._message, self._continuation()), id=request_id)

    def _num_answers(self) -> int:
        if self._width:
            return self._width
        if isinstance(self._message, msg.SubmitHttp):
            with contextlib.suppress(RequestError):
                return wanted(self._message.request).width
            return 0
        return sum(request.n for request in self._message.requests)

    def _continuation(self) -> Continuation | None:
        if not self.has_begun:
            return None
        names = b"" if self._names is None else self._names.text
        total = self._cumulative_logprob
        if self._packed:
            total = delta_of(self._packed, b"").cumulative_logprob
        return Continuation(
            bytes(self.ids), self._num_lines, self._head, total, names, self._num_cached
        )


def resumed(
    message: msg.Submit | msg.SubmitHttp, where: Continuation | None
) -> msg.Submit | msg.SubmitHttp:
    if isinstance(message, msg.SubmitHttp):
        request = replace(pulls_nothing(message.request), continuation=where)
        return replace(message, request=request)
    requests = tuple(replace(pulls_nothing(each), continuation=where) for each in message.requests)
    return replace(message, requests=requests)


def _difference(first: Identity, second: Identity, model: str | None) -> str:
    if first.digest != second.digest:
        return "its files, its tokenizer or an option that chooses them has changed"
    names = first.adapters.keys() if model is None else {model}
    changed = [each for each in names if first.adapters.get(each) != second.adapters.get(each)]
    return f"adapter {printable(changed[0])} has changed or is not there" if changed else ""


def may_resume(message: object) -> TypeGuard[msg.Submit | msg.SubmitHttp]:
    """Tell whether a message is a request that may resume in another process.

    Users' own code may do anything, and is not called twice.
    """
    if isinstance(message, msg.SubmitHttp):
        return message.request.path != INVOCATIONS
    return isinstance(message, msg.Submit)


def _work(
    message: msg.Submit | msg.SubmitHttp,
) -> tuple[GenerateRequest, ...] | tuple[HttpRequest]:
    return message.requests if isinstance(message, msg.Submit) else (message.request,)
