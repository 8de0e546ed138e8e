"""Run by the engine's interpreter: has vLLM's own server asked for what its engine refuses.

Reads an engine configuration; no core is started. Writes for each exception of `vllm.exceptions`
the status that vLLM's server gives it, and what leaves a worker, by path; "native" is no body.
"""

import asyncio
import inspect
import json
import sys
from contextlib import redirect_stdout
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import msgspec
from vllm import exceptions
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.renderers import renderer_from_config
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.input_processor import InputProcessor

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm import starting
from lmi_backend.engines.vllm.http_app import HttpApp
from lmi_backend.engines.vllm.lora import LoraAdapters
from lmi_backend.engines.vllm.requests import translated
from lmi_backend.errors import LmiError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.ipc.messages import failure_of

TEXT = [{"role": "user", "content": "a"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TEXT},
    "/v1/completions": {"prompt": "a"},
    "/v1/messages": {"messages": TEXT, "max_tokens": 5},
    "/v1/responses": {"input": "a"},
}
KNOWN = {"message": "why", "http_status": HTTPStatus.TOO_MANY_REQUESTS}


class Engine(AsyncLLM):
    """vLLM's engine without a core, which refuses each request."""

    errored, is_running = False, True
    refusal: Exception

    def __init__(self, config: Any) -> None:
        self.vllm_config, self.model_config = config, config.model_config
        self.renderer = renderer_from_config(config)
        self.input_processor = InputProcessor(config, self.renderer)
        self.log_requests = False

    def __del__(self) -> None:
        """Stop nothing."""

    def check_admission(self, *_: Any, **__: Any) -> None:
        """Admit what comes: others may come before it is added."""

    async def get_supported_tasks(self) -> Any:
        return ("generate",)

    async def add_request(self, *_: Any, **__: Any) -> Any:
        raise self.refusal


class Sink:
    def __init__(self) -> None:
        self.taken: list[HttpChunk] = []

    def take(self, chunk: HttpChunk) -> None:
        self.taken.append(chunk)

    def defer(self, *_: Any) -> bool:
        return False

    async def drain(self) -> None:
        pass


def made(kind: type[Exception]) -> Exception:
    if kind.__init__ is Exception.__init__:
        return kind("why")
    taken = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return kind(*(KNOWN.get(each.name, "why") for each in taken if each.default is each.empty))


async def answer(app: HttpApp, path: str, *, is_stream: bool) -> Any:
    """Return the failure of a body, or the chunks of its answer."""
    body = json.dumps(BODIES[path] | {"model": "lmi", "stream": is_stream}).encode()
    sink = Sink()
    try:
        await app.respond(HttpRequest(path, body), sink)
    except LmiError as error:
        return failure_of(1, error)
    except Exception as error:  # noqa: BLE001  as the engine does
        return failure_of(1, translated(error))
    return sink.taken


async def main() -> dict[str, Any]:
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
    starting.prepare_processes(config)
    arguments = starting.engine_args(config)
    engine = Engine(arguments.create_engine_config())

    async def check(_: Any) -> None:
        pass

    app = await HttpApp.create(
        engine, arguments, LoraAdapters(1), config, grammars=SimpleNamespace(check=check)
    )
    found = {}
    for name, kind in inspect.getmembers(exceptions, inspect.isclass):
        if not issubclass(kind, exceptions.VLLMError):
            continue
        engine.refusal = made(kind)
        status = create_error_response(engine.refusal).error.code
        native = failure_of(1, translated(engine.refusal))
        answers = {"native": native} | {
            f"{path} {how}": await answer(app, path, is_stream=how == "streamed")
            for path in BODIES
            for how in ("whole", "streamed")
        }
        found[name] = [status, answers]
    return found


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        result = asyncio.run(main())
    sys.stdout.buffer.write(msgspec.json.encode(result))
