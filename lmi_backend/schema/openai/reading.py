"""Read OpenAI's completion and chat bodies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import Sampling
from lmi_backend.names import check_name
from lmi_backend.schema import values
from lmi_backend.schema.dropped import DroppedParameters
from lmi_backend.schema.parameters import Requested, answers_wanted, make_sampling, read_parameters
from lmi_backend.schema.values import Prompt

_DROPPED: Final = DroppedParameters()
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
_REFUSED: Final = ("tools", "functions", "suffix")


@dataclass(frozen=True)
class Body:
    """What a body asks for."""

    prompts: tuple[Prompt, ...]
    """Of a completion."""
    messages: list[dict[str, Any]]
    """Of a chat."""
    template_options: dict[str, Any]
    sampling: Sampling
    has_limit: bool
    """Whether it says how many tokens it wants; if not, a chat may take all there are."""
    n: int
    model: str
    """Empty for the only one."""
    stream: bool
    include_usage: bool
    """Whether a stream ends with the counts of tokens."""
    echo: bool
    logprobs: int | None
    """Alternatives wanted for each token; None for no tokens."""


def read_chat(body: dict[str, Any]) -> Body:
    """Read the body of /v1/chat/completions.

    Raises:
        RequestError: it is wrong.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("is not a list of messages", field="messages", value=messages)
    options = dict(_optional(values.OBJECT, "chat_template_kwargs", body) or {})
    continues = _flag("continue_final_message", body)
    options["continue_final_message"] = continues
    options["add_generation_prompt"] = _flag("add_generation_prompt", body, not continues)
    wanted = _flag("logprobs", body)
    top = _optional(values.integer(0, 20), "top_logprobs", body) or 0
    return _read(
        body,
        messages=[_message(each) for each in messages],
        template_options=options,
        logprobs=top if wanted else None,
    )


def read_completion(body: dict[str, Any]) -> Body:
    """Read the body of /v1/completions.

    Raises:
        RequestError: it is wrong.
    """
    logprobs = _optional(values.integer(0, 20), "logprobs", body)
    parameters = {"max_tokens": _COMPLETION_TOKENS} | _given(body)
    return _read(parameters, prompts=_prompts(body.get("prompt")), logprobs=logprobs)


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
    raise HttpError(404, f"The model `{body.model}` does not exist.")


def _read(
    body: Mapping[str, object],
    *,
    prompts: tuple[Prompt, ...] = (),
    messages: list[dict[str, Any]] | None = None,
    template_options: dict[str, Any] | None = None,
    logprobs: int | None,
) -> Body:
    given = _given(body)
    for name in _REFUSED:
        if given.get(name):
            raise RequestError("is served by vLLM only", field=name)
    dropped: list[str] = []
    named = {name: value for name, value in given.items() if name not in _OURS}
    requested: Requested = read_parameters(named, dropped=dropped)
    _DROPPED.note(dropped)
    has_limit = "max_tokens" in requested
    # OpenAI samples unless it is told not to.
    requested = {"temperature": 1.0, "max_tokens": 1 << 30} | requested
    stream_options = _optional(values.OBJECT, "stream_options", body) or {}
    return Body(
        prompts=prompts,
        messages=messages or [],
        template_options=template_options or {},
        sampling=make_sampling(requested),
        has_limit=has_limit,
        n=answers_wanted(requested),
        model=_optional(values.STRING, "model", body) or "",
        stream=_flag("stream", body),
        include_usage=bool(stream_options.get("include_usage")),
        echo=_flag("echo", body),
        logprobs=logprobs,
    )


def _given(body: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _optional(kind: values.Value, name: str, body: Mapping[str, object]) -> Any:
    value = body.get(name)
    return None if value is None else values.read_value(kind, name, value)


def _flag(name: str, body: Mapping[str, object], default: bool = False) -> bool:
    value = _optional(values.BOOLEAN, name, body)
    return default if value is None else bool(value)


def _message(message: object) -> dict[str, Any]:
    """Return a message whose content is text: its parts are joined."""
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
    return message | {"content": content or ""}


def _prompts(prompt: Any) -> tuple[Prompt, ...]:
    """Return the prompts of a body: a text, token ids, or a list of either."""
    match prompt:
        case str():
            return (prompt,)
        case [int(), *_] if all(type(each) is int for each in prompt):
            return (tuple(prompt),)
        case [str() | list(), *_]:
            return tuple(each for item in prompt for each in _prompts(item))
    accepted = "a text, a list of token ids, or a list of either"
    raise RequestError("is no prompt", field="prompt", value=prompt, accepted=accepted)
