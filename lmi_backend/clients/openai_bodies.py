"""OpenAI's bodies for engines without a server of their own; vLLM answers with its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

import msgspec

from lmi_backend.clients import values
from lmi_backend.clients.parameters import (
    FIELDS,
    UNLIMITED,
    DroppedParameters,
    Requested,
    make_sampling,
    read_parameters,
)
from lmi_backend.clients.values import Prompt
from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import Delta, Sampling, Token
from lmi_backend.names import check_name

DROPPED: Final = DroppedParameters()
"""Of this worker's one model."""
_COMPLETION_TOKENS: Final = 16
"""OpenAI's default of /v1/completions."""
_OURS: Final = frozenset(
    {
        "messages", "prompt", "model", "stream", "stream_options", "logprobs", "top_logprobs",
        "echo", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "tools",
        "tool_choice", "functions", "suffix",
    }
)  # fmt: skip
"""Fields read here; the others are parameters as every client may give them."""
_LIMITS: Final = frozenset(name for name, each in FIELDS.items() if each.target == "max_tokens")
READ: Final = _OURS | FIELDS.keys()
"""Members that are read, or refused by what reads them."""
_REFUSED: Final = ("tools", "functions", "suffix")


@dataclass(frozen=True)
class Body:
    sampling: Sampling
    has_limit: bool
    """Whether it says how many tokens it wants; if not, a chat may take all there are."""
    n: int
    model: str
    """Empty for the only one."""
    stream: bool
    include_usage: bool
    """Whether the last event of a stream has the counts of tokens."""
    echo: bool
    logprobs: int | None
    """Alternatives wanted for each token; None for no tokens."""
    prompts: tuple[Prompt, ...] = ()
    """Of a completion."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """Of a chat."""
    template_options: dict[str, Any] = field(default_factory=dict)
    shows_prompt_only: bool = False
    """Whether the prompt is all that is wanted, as `echo` with a `max_tokens` of 0 says."""


def read_chat(body: dict[str, Any]) -> Body:
    """Read the body of /v1/chat/completions. Raises RequestError: it is wrong."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("is not a list of messages", field="messages", value=messages)
    options = dict(_optional(values.OBJECT, "chat_template_kwargs", body) or {})
    continues = _flag("continue_final_message", body)
    options["continue_final_message"] = continues
    options["add_generation_prompt"] = _flag("add_generation_prompt", body, not continues)
    wanted = _flag("logprobs", body)
    top = _optional(values.integer(0, 20), "top_logprobs", body) or 0
    if top and not wanted:
        # As OpenAI's server and vLLM's do.
        problem = "is for log probabilities only"
        raise RequestError(problem, field="top_logprobs", value=top, accepted="logprobs: true")
    read = _read(body, top if wanted else None)
    return replace(read, messages=[*map(_message, messages)], template_options=options)


def read_completion(body: dict[str, Any]) -> Body:
    """Read the body of /v1/completions. Raises RequestError: it is wrong."""
    logprobs = _optional(values.integer(0, 20), "logprobs", body)
    parameters = _given(body)
    if _LIMITS.isdisjoint(parameters):
        parameters["max_tokens"] = _COMPLETION_TOKENS
    only = _flag("echo", body) and _optional(values.integer(0), "max_tokens", parameters) == 0
    # An engine gives the prompt's log probabilities with a token.
    parameters |= {"max_tokens": 1} if only else {}
    prompts = _prompts(body.get("prompt"))
    return replace(_read(parameters, logprobs), prompts=prompts, shows_prompt_only=only)


def adapter_of(body: Body, names: Collection[str], adapters: Mapping[str, str]) -> str:
    """Return the adapter a body names as its model; none for the model itself.

    Args:
        names: the model's own.
        adapters: name to folder.

    Raises:
        HttpError: there is neither a model nor an adapter of that name.
        RequestError: no adapter can have that name.
    """
    if body.model in adapters:
        return body.model
    if body.model in ("", *names):
        return ""
    check_name("model", body.model)
    raise HttpError(HTTPStatus.NOT_FOUND, f"The model `{body.model}` does not exist.")


def _read(body: Mapping[str, object], logprobs: int | None) -> Body:
    given = _given(body)
    for name in _REFUSED:
        if given.get(name):
            raise RequestError("is served by vLLM only", field=name)
    dropped: list[str] = []
    named = {name: value for name, value in given.items() if name not in _OURS}
    requested: Requested = read_parameters(named, dropped=dropped, refuses_unserved=True)
    DROPPED.note(dropped)
    most, wanted = requested.get("best_of", 1), requested.get("n", 1)
    if most not in (1, wanted):
        # OpenAI's returns the best n of them.
        problem = "is served by no engine"
        raise RequestError(problem, field="best_of", value=most, accepted=str(wanted))
    has_limit = "max_tokens" in requested
    # OpenAI samples unless it is told not to.
    requested = {"temperature": 1.0, "max_tokens": 1 << 30} | requested
    stream, include_usage = _streaming(body)
    return Body(
        sampling=make_sampling(requested),
        has_limit=has_limit,
        n=wanted,
        model=_optional(values.STRING, "model", body) or "",
        stream=stream,
        include_usage=include_usage,
        echo=_flag("echo", body),
        logprobs=logprobs,
    )


def _streaming(body: Mapping[str, object]) -> tuple[bool, bool]:
    """Return whether a stream is wanted, and whether its last event has the counts of tokens."""
    stream = _flag("stream", body)
    options = _optional(values.OBJECT, "stream_options", body) or {}
    if options and not stream:
        # As OpenAI's server and vLLM's do.
        raise RequestError("are for streams only", field="stream_options", accepted="stream: true")
    return stream, _flag("include_usage", options)


def _given(body: Mapping[str, object]) -> dict[str, Any]:
    return {
        name: value
        for name, value in body.items()
        if value is not None and (name not in UNLIMITED or value != UNLIMITED[name])
    }


def _optional(kind: values.Value, name: str, body: Mapping[str, object]) -> Any:
    value = body.get(name)
    return None if value is None else values.read_value(kind, name, value)


def _flag(name: str, body: Mapping[str, object], default: bool = False) -> bool:
    value = _optional(values.BOOLEAN, name, body)
    return default if value is None else bool(value)


def _message(message: object) -> dict[str, Any]:
    """Return a message whose content is text: its parts are joined.

    Templates know no `developer`, which is OpenAI's later name of `system`.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError("has a message without a role", field="messages", value=message)
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) < len(parts):
            raise RequestError("has a part that is not text", field="messages", value=message)
        content = "\n".join(texts)
    if not isinstance(content, str | None):
        raise RequestError("has content that is not text", field="messages", value=message)
    role = "system" if message["role"] == "developer" else message["role"]
    return message | {"role": role, "content": content or ""}


def _prompts(prompt: Any) -> tuple[Prompt, ...]:
    match prompt:
        case str():
            return (prompt,)
        case [int(), *_] if all(type(each) is int for each in prompt):
            return (tuple(prompt),)
        case [str() | list(), *_]:
            return tuple(each for item in prompt for each in _prompts(item))
    accepted = "a text, a list of token ids, or a list of either"
    raise RequestError("is not a prompt", field="prompt", value=prompt, accepted=accepted)


DONE: Final = b"data: [DONE]\n\n"


class Writer:
    """Writes the answer to one body. `ChatWriter` and `CompletionWriter` know the format."""

    KIND = ""
    STREAM_KIND = ""
    PREFIX = ""

    def __init__(self, model: str, *, echo: Sequence[str] = (), wants_logprobs: bool) -> None:
        self._id, self._created = f"{self.PREFIX}-{uuid.uuid4().hex}", int(time.time())
        self._model, self._echo = model, echo
        self.wants_logprobs = wants_logprobs
        self._begun: set[int] = set()

    def whole(self, answers: Sequence[Delta], usage: dict[str, int]) -> bytes:
        choices = [self._choice(answer) for answer in answers]
        return self._encode(self.KIND, choices, usage)

    def event(self, delta: Delta) -> bytes:
        choices = [self._part(delta)]
        return b"data: " + self._encode(self.STREAM_KIND, choices) + b"\n\n"

    def usage_event(self, usage: dict[str, int]) -> bytes:
        return b"data: " + self._encode(self.STREAM_KIND, [], usage) + b"\n\n"

    def _encode(
        self, kind: str, choices: list[dict[str, object]], usage: dict[str, int] | None = None
    ) -> bytes:
        # In vLLM's order, by which an answer that resumes is given its name again.
        body = {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }
        return msgspec.json.encode(body if usage is None else body | {"usage": usage})

    def _choice(self, answer: Delta) -> dict[str, object]:
        raise NotImplementedError

    def _part(self, delta: Delta) -> dict[str, object]:
        raise NotImplementedError

    def _is_first(self, delta: Delta) -> bool:
        is_first = delta.index not in self._begun
        self._begun.add(delta.index)
        return is_first


class ChatWriter(Writer):
    """/v1/chat/completions."""

    KIND = "chat.completion"
    STREAM_KIND = "chat.completion.chunk"
    PREFIX = "chatcmpl"

    def _choice(self, answer: Delta) -> dict[str, object]:
        message = {"role": "assistant", "content": answer.text}
        return self._around("message", message, answer)

    def _part(self, delta: Delta) -> dict[str, object]:
        role = {"role": "assistant"} if self._is_first(delta) else {}
        return self._around("delta", role | {"content": delta.text}, delta)

    def _around(self, name: str, content: Mapping[str, object], delta: Delta) -> dict[str, object]:
        tokens = [self._token(each) for each in delta.tokens]
        return {
            "index": delta.index,
            name: content,
            "logprobs": {"content": tokens} if self.wants_logprobs else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }

    def _token(self, token: Token) -> dict[str, object]:
        return _token(token) | {"top_logprobs": [_token(each) for each in token.top]}


class CompletionWriter(Writer):
    """/v1/completions."""

    KIND = STREAM_KIND = "text_completion"
    PREFIX = "cmpl"

    def __init__(self, model: str, *, echo: Sequence[str] = (), wants_logprobs: bool) -> None:
        super().__init__(model, echo=echo, wants_logprobs=wants_logprobs)
        self._lengths: dict[int, int] = {}
        """Characters of each answer's tokens so far."""

    def _choice(self, answer: Delta) -> dict[str, object]:
        return self._part(answer)

    def _part(self, delta: Delta) -> dict[str, object]:
        prefix = self._echo[delta.index] if self._echo and self._is_first(delta) else ""
        return {
            "index": delta.index,
            "text": prefix + delta.text,
            "logprobs": self._lists(delta) if self.wants_logprobs else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }

    def _lists(self, delta: Delta) -> dict[str, object]:
        """Return the tokens of a delta, those of the prompt first where it is shown."""
        tokens = (*delta.prompt_tokens, *delta.tokens) if self._echo else delta.tokens
        offsets = []
        for token in tokens:
            offsets.append(start := self._lengths.get(delta.index, 0))
            self._lengths[delta.index] = start + len(token.text)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            # Nothing is said of a prompt's first.
            "top_logprobs": [
                None if each.logprob is None else {top.text: top.logprob for top in each.top}
                for each in tokens
            ],
            "text_offset": offsets,
        }


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _token(token: Token) -> dict[str, object]:
    return {
        "token": token.text,
        "logprob": token.logprob,
        "bytes": list(token.text.encode("utf-8", "replace")),
    }
