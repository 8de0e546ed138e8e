"""`lmi-backend generate`: send a request to a running server."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from lmi_backend.cli.arguments import DEFAULT_URL, add_timeout
from lmi_backend.errors import ConfigurationError, UnavailableError
from lmi_backend.printable import listed
from lmi_backend.supervisor.local_server import LocalServer
from lmi_backend.supervisor.triton_http import TritonHttp


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "generate",
        help="send a prompt to a running server",
        description="Send a prompt to a model of a running server, and print the answer.",
        examples=(
            'lmi-backend generate "The capital of France is"',
            'lmi-backend generate "Tell a story:" --stream --url http://127.0.0.1:8080',
        ),
        statuses={1: "the server does not answer, or refuses the request"},
    )
    parser.add_argument("prompt", help="what the model continues")
    parser.add_argument("--model", metavar="NAME", help="default: the only model of the server")
    parser.add_argument(
        "--url",
        default=DEFAULT_URL,
        help="Triton's HTTP port or the front end's (default %(default)s)",
    )
    parser.add_argument("--stream", action="store_true", help="print the answer as it is generated")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="default %(default)s")
    parser.add_argument("--temperature", type=float, help="default: the server's")
    add_timeout(parser, 300.0, "wait no longer for the next chunk")
    parser.set_defaults(run=_generate)


def _generate(arguments: argparse.Namespace) -> int:
    parameters: dict[str, Any] = {"max_new_tokens": arguments.max_new_tokens}
    if arguments.temperature is not None:
        parameters["temperature"] = arguments.temperature
    server = TritonHttp(arguments.url, timeout=arguments.timeout)
    model = arguments.model or _only_model(server)
    if arguments.stream:
        for text in stream(server, model, arguments.prompt, parameters):
            sys.stdout.write(text)
            sys.stdout.flush()
    else:
        body = {"inputs": arguments.prompt, "parameters": parameters}
        answer = server.generate(model, body)
        sys.stdout.write(f"{answer['generated_text']}\n")
    return 0


def _only_model(server: TritonHttp) -> str:
    """Return the name of the only model of a server.

    Raises:
        ConfigurationError: there are several, or nobody may list them.
        UnavailableError: nobody answers, or there is none.
    """
    names = _listed(server)
    if not names:
        raise UnavailableError(f"{server.url}: no model is loaded")
    if len(names) > 1:
        raise ConfigurationError(f"--model is needed; accepted: {listed(names)}")
    return names[0]


def _listed(server: TritonHttp) -> list[str]:
    """Return the models of a front end, or those of a tritonserver of this machine."""
    if server.is_ready("") is None:
        raise UnavailableError(f"{server.url}: no answer: nobody listens there")
    answer = None
    with contextlib.suppress(UnavailableError):  # A tritonserver has no such path.
        answer = server.json("/v1/models")
    if isinstance(answer, dict) and isinstance(cards := answer.get("data"), list):
        # A model has a card for each of its names, its own first.
        own = [card for card in reversed(cards) if not card["parent"]]
        return list({card["root"]: card["id"] for card in own}.values())
    try:
        local = LocalServer.at(server.url)
    except UnavailableError as error:
        raise ConfigurationError(f"--model is needed: {error}") from error
    return [name for name, state, endpoint in local.models() if endpoint and state == "READY"]


def stream(
    server: TritonHttp, model: str, prompt: str, parameters: dict[str, Any]
) -> Iterator[str]:
    """Yield the chunks of an answer as they come, and a line feed."""
    body = {"inputs": prompt, "parameters": parameters, "stream": True}
    for event in server.generate_stream(model, body):
        yield event["text_output"]
    yield "\n"
