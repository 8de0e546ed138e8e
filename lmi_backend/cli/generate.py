"""`lmi-backend generate`: ask a running server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from lmi_backend.cli.arguments import DEFAULT_URL, add_timeout
from lmi_backend.supervisor.triton_http import TritonHttp


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser("generate", help="send a prompt to a running server")
    parser.add_argument("prompt")
    parser.add_argument("--model", default="tiny", help="Triton model (default %(default)s)")
    parser.add_argument("--url", default=DEFAULT_URL, help="default %(default)s")
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
    if arguments.stream:
        for text in stream(server, arguments.model, arguments.prompt, parameters):
            sys.stdout.write(text)
            sys.stdout.flush()
    else:
        body = {"inputs": arguments.prompt, "parameters": parameters}
        answer = server.generate(arguments.model, body)
        sys.stdout.write(f"{answer['generated_text']}\n")
    return 0


def stream(
    server: TritonHttp, model: str, prompt: str, parameters: dict[str, Any]
) -> Iterator[str]:
    """Yield the chunks of an answer as they come, and a line feed."""
    body = {"inputs": prompt, "parameters": parameters, "stream": True}
    for event in server.generate_stream(model, body):
        yield event["text_output"]
    yield "\n"
