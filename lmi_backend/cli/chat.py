"""Talk to a model of a running server."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.cli.arguments import add_timeout
from lmi_backend.errors import ConfigurationError, RequestError, UnavailableError
from lmi_backend.front_end_settings import KEY_VARIABLE, PORT
from lmi_backend.printable import listed, say

if TYPE_CHECKING:
    import argparse

_NOTHING: Final = ("", "[DONE]")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "chat",
        help="talk to a model of a running server",
        description="Talk to a model of a running front end: each line you type is a message. "
        f"Ctrl-C stops an answer, Ctrl-D leaves. {KEY_VARIABLE} holds the key, if one is needed.",
        examples=("lmi-backend chat", 'lmi-backend chat --system "Answer in one sentence."'),
        statuses={1: "the server does not answer"},
    )
    add = parser.add_argument
    add("--model", metavar="NAME", help="default: the only model of the server")
    add("--url", default=f"http://127.0.0.1:{PORT}", help="the front end's (default %(default)s)")
    add("--system", metavar="TEXT", help="what the model is told first")
    add_timeout(parser, 300.0, "wait no longer for the next chunk")
    parser.set_defaults(run=_chat)


def _chat(arguments: argparse.Namespace) -> int:
    model = arguments.model or _only_model(arguments)
    with contextlib.suppress(ImportError):
        __import__("readline")  # What `input` edits lines with.
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    messages: list[dict[str, str]] = system
    while True:
        try:
            text = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return 0
        if text.strip():
            question = {"role": "user", "content": text}
            messages = _answered(arguments, model, [*messages, question])


def _answered(
    arguments: argparse.Namespace, model: str, messages: list[dict[str, str]]
) -> list[dict[str, str]]:
    """Print an answer as it comes; return the conversation with it, or without its question."""
    body, answer = {"model": model, "messages": messages, "stream": True}, ""
    try:
        for event in _read(arguments, "/v1/chat/completions", body):
            for choice in event.get("choices", []):
                delta = choice.get("delta", {})
                answer += delta.get("content") or ""
                sys.stdout.write(delta.get("reasoning") or delta.get("content") or "")
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except RequestError as error:
        say(str(error))
        return messages[:-1]
    sys.stdout.write("\n")
    return [*messages, {"role": "assistant", "content": answer}]


def _only_model(arguments: argparse.Namespace) -> str:
    (answer,) = _read(arguments, "/v1/models")
    # A model has a card for each of its names, its own first.
    names = {card["root"]: card["id"] for card in reversed(answer["data"]) if not card["parent"]}
    if not names:
        raise UnavailableError(f"{arguments.url}: no model is loaded")
    if len(names) > 1:
        raise ConfigurationError(f"--model is needed; accepted: {listed(names.values())}")
    return str(*names.values())


def _read(arguments: argparse.Namespace, path: str, body: Any = None) -> Iterator[Any]:
    """Yield the lines of an answer as they come, up to OpenAI's [DONE].

    Raises:
        RequestError: the server refuses the request.
        UnavailableError: nobody answers as a front end does.
    """
    key, url = os.environ.get(KEY_VARIABLE), arguments.url.rstrip("/")
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(f"{url}{path}", data, headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=arguments.timeout) as answer:  # noqa: S310
            lines = (raw.decode().removeprefix("data:").strip() for raw in answer)
            yield from (_checked(json.loads(each)) for each in lines if each not in _NOTHING)
    except urllib.error.HTTPError as error:
        _checked(json.loads(error.read() or b"{}"))
        raise UnavailableError(f"{url}: no answer: {error}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise UnavailableError(f"{url}: no answer: {error}") from error


def _checked(event: Any) -> Any:
    if error := event.get("error"):
        text = error.get("message", error) if isinstance(error, dict) else error
        raise RequestError(str(text), field="the server says:")
    return event
