"""Call users' formatters, of LMI's current and of its older kind.

The current kind gets LMI bodies as the completion requests that LMI's handlers make of them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.lmi import MAX_TOKENS
from lmi_backend.clients.lmi_formats import token_texts
from lmi_backend.clients.openai import COMPLETIONS
from lmi_backend.errors import LMI_ERROR, HttpError
from lmi_backend.generation import HttpRequest

if TYPE_CHECKING:
    from lmi_backend.generation import Delta
    from lmi_backend.worker.handlers.custom_code import Function


_NAMES: Final = {
    "max_new_tokens": "max_tokens",
    "stop_sequences": "stop",
    "ignore_eos_token": "ignore_eos",
    "truncate": "truncate_prompt_tokens",
}
_OURS: Final = frozenset({"do_sample", "details", "return_full_text", "decoder_input_details"})


def completion_request(body: Mapping[str, Any]) -> HttpRequest:
    parameters = body.get("parameters") or {}
    renamed = {_NAMES.get(name, name): parameters[name] for name in parameters.keys() - _OURS}
    if parameters.get("do_sample") is False:
        renamed["temperature"] = 0.0
    completion = {"max_tokens": MAX_TOKENS} | renamed | {"prompt": body["inputs"]}
    if body.get("stream"):
        completion["stream"] = True
    if isinstance(body.get("adapters"), str) and body["adapters"]:
        completion["model"] = body["adapters"]
    return HttpRequest(COMPLETIONS, json.dumps(completion).encode())


class Response(dict[str, Any]):
    """A response as formatters know it from vLLM: members are attributes."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__({name: _wrap(value) for name, value in members.items()})

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def model_dump(self, **_: Any) -> dict[str, Any]:
        dumped: dict[str, Any] = json.loads(self.model_dump_json())
        return dumped

    def model_dump_json(self, **_: Any) -> str:
        return json.dumps(self)


def _wrap(value: Any) -> Any:
    if isinstance(value, dict):
        return Response(value)
    return [_wrap(item) for item in value] if isinstance(value, list) else value


_INPUT_WORDS: Final = "Custom formatter failed: Custom input formatter execution failed"
_OUTPUT_WORDS: Final = "Custom output formatter execution failed"
_FINISH: Final = {"stop": "eos_token"}


def unreadable(error: Exception) -> HttpError:
    """Return LMI's answer to a body that cannot be read, in its text."""
    return _error(f"Input parsing failed: {error}")


def _failed(words: str, error: Exception) -> HttpError:
    """Return LMI's answer to a formatter that raises: its text, and then what it only logs."""
    return _error(f"{words}: {type(error).__name__}: {error}")


def _error(text: str) -> HttpError:
    return HttpError(LMI_ERROR, json.dumps({"error": text, "code": LMI_ERROR}))


def read_body(
    formatter: Function, body: Any, call: Any, properties: Mapping[str, str]
) -> dict[str, Any]:
    """Let a formatter read a body, and return the body to continue with.

    Args:
        body: the decoded body, which the current kind is given.
        call: LMI's `Input`, which the older kind is given.
        properties: the model's, for one that names them.

    Raises:
        HttpError: it raised, or did not return a body.
    """
    is_older = _annotation(formatter).endswith("Input")
    try:
        own = {"properties": properties} if _takes(formatter, "properties") else {}
        read = formatter(call if is_older else body, **own)
    except Exception as error:
        raise _failed(_INPUT_WORDS, error) from error
    if isinstance(read, dict):
        return read
    members = {"inputs": getattr(read, "input_text", None)}
    members |= {"parameters": getattr(read, "parameters", {})}
    if adapters := getattr(read, "adapters", None):
        members["adapters"] = adapters
    return members


def is_older(formatter: Function) -> bool:
    """Tell whether an output formatter is of the kind that is called with each token."""
    return _annotation(formatter).endswith("TextGenerationOutput")


def write_answer(formatter: Function, response: Any) -> str:
    """Let a formatter of the current kind write a response or a chunk; raise HttpError."""
    try:
        written = formatter(response)
        return written if isinstance(written, str) else json.dumps(plain(written)) + "\n"
    except Exception as error:
        raise _failed(_OUTPUT_WORDS, error) from error


def plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else value


class OlderFormatter:
    """Calls a formatter of the older kind with what one request has generated so far."""

    def __init__(self, formatter: Function, text: str, parameters: Mapping[str, Any]) -> None:
        from djl_python.request_io import (  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
            Sequence,
            TextGenerationOutput,
            TextInput,
            Token,
        )

        self._formatter, self._token_class = formatter, Token
        self._sequence = Sequence()
        text_input = TextInput(input_text=text, parameters=dict(parameters))
        self._output = TextGenerationOutput(input=text_input, sequences={0: self._sequence})

    def write(self, delta: Delta) -> str:
        """Return what it writes for the next chunk, or raise HttpError."""
        self._add(delta)
        try:
            return str(self._formatter(self._output) or "")
        except Exception as error:
            raise _failed(_OUTPUT_WORDS, error) from error

    def _add(self, delta: Delta) -> None:
        self._sequence.tokens += [
            self._token_class(token.id, text, token.logprob, token.is_special or None)
            for token, text in zip(delta.tokens, token_texts(delta), strict=False)
        ]
        if delta.finish_reason:
            reason = _FINISH.get(delta.finish_reason, delta.finish_reason)
            self._sequence.finish_reason = reason
            self._sequence.stop_reason = delta.stop_reason
            self._output.finished = True
        if delta.cumulative_logprob is not None:
            self._sequence.cumulative_log_prob = delta.cumulative_logprob


def _annotation(formatter: Function) -> str:
    parameters = list(inspect.signature(formatter).parameters.values())
    if not parameters or parameters[0].annotation is inspect.Parameter.empty:
        return ""
    annotation = parameters[0].annotation
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def _takes(function: Function, name: str) -> bool:
    """Tell whether a function has a parameter of a name, or takes any."""
    parameters = inspect.signature(function).parameters.values()
    return any(each.name == name or each.kind is each.VAR_KEYWORD for each in parameters)
