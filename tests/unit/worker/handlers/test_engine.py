"""Users' code around an engine; the engine is the echo."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.echo import EchoEngine
from lmi_backend.engines.protocol import ChunkSink
from lmi_backend.engines.streams import respond_stream, stream
from lmi_backend.errors import ConfigurationError, EngineError, HttpError, RequestError
from lmi_backend.generation import GenerateRequest, HttpChunk, HttpRequest
from lmi_backend.worker.handlers.engine import CustomEngine

FORMATTERS = """
    import json
    from djl_python.input_parser import input_formatter
    from djl_python.output_formatter import TextGenerationOutput, output_formatter
"""


async def started(
    folder: Path, text: str, inner: type[EchoEngine] | None = EchoEngine
) -> CustomEngine:
    file = folder / "model.py"
    file.write_text(dedent(FORMATTERS) + dedent(text), encoding="utf-8")
    config = EngineConfig(model="", custom_file=str(file))
    engine = CustomEngine(config, inner and inner(config))
    await engine.start()
    return engine


async def answer(engine: CustomEngine, body: Any) -> list[HttpChunk]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = HttpRequest("/invocations", data)
    return [chunk async for chunk in respond_stream(engine.respond, request)]


async def ask(folder: Path, text: str, body: Any) -> list[HttpChunk]:
    return await answer(await started(folder, text), body)


def text_of(chunks: list[HttpChunk]) -> str:
    assert chunks[-1].is_last
    return b"".join(chunk.data for chunk in chunks).decode()


READ = """
    @input_formatter
    def read(payload: dict, tokenizer=None, **kwargs) -> dict:
        return {"inputs": payload["question"], "parameters": {"max_new_tokens": 2}}
"""
WRITE = """
    @output_formatter
    def write(response):
        if isinstance(response, str):
            return response.upper()
        return {"was": response.prompt}
"""


async def test_an_input_formatter_reads_the_body(tmp_path: Path) -> None:
    answer = json.loads(text_of(await ask(tmp_path, READ, {"question": "a b c"})))
    assert answer == {"generated_text": "a b"}


@pytest.mark.parametrize(
    ("text", "body", "words"),
    [
        (
            READ,
            {},
            "Custom formatter failed: Custom input formatter execution failed: KeyError: "
            "'question'",
        ),
        (WRITE, b"{no", "Input parsing failed: Expecting property name enclosed"),
        (
            "\n@output_formatter\ndef write(response):\n    raise ValueError('no')\n",
            {"inputs": "a"},
            "Custom output formatter execution failed: ValueError: no",
        ),
    ],
)
async def test_what_raises_or_is_no_json_is_lmis_error(
    tmp_path: Path, text: str, body: Any, words: str
) -> None:
    (chunk,) = await ask(tmp_path, text, body)
    error = json.loads(chunk.data)
    assert (chunk.status, error["code"]) == (424, 424)
    assert error["error"].startswith(words)


async def test_an_output_formatter_writes_the_response(tmp_path: Path) -> None:
    """The echo engine's response is the completion request itself."""
    assert json.loads(text_of(await ask(tmp_path, WRITE, {"inputs": "a b"}))) == {"was": "a b"}


async def test_an_older_formatter_is_called_with_each_step(tmp_path: Path) -> None:
    text = """
        @output_formatter
        def write(out: TextGenerationOutput) -> str:
            sequence, text = out.sequences[out.best_sequence_index], ""
            while sequence.has_next_token():
                token, index, is_first, is_last = sequence.get_next_token()
                text += f"{index}{token.text}{'<' * is_first}{'>' * is_last}"
            return text
    """
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 3}, "stream": True}
    chunks = await ask(tmp_path, text, body)
    assert text_of(chunks) == "0a<1 b2a>"
    assert len(chunks) == 3


async def test_the_oldest_kind_of_formatter_is_refused_with_the_way_out(tmp_path: Path) -> None:
    text = """
        @output_formatter
        def write(token, first_token, last_token, details, generated_text):
            return token.text
    """
    with pytest.raises(ConfigurationError, match=r"model.py: .*first_token.*TextGenerationOutput"):
        await ask(tmp_path, text, {"inputs": "a b"})


@pytest.mark.parametrize("text", [READ, ""])
async def test_an_adapters_own_formatter_wins_and_needs_none_of_the_models(
    tmp_path: Path, text: str
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    own = READ.replace('payload["question"]', '"of the adapter"')
    (adapter / "model.py").write_text(dedent(FORMATTERS) + dedent(own), encoding="utf-8")
    engine = await started(tmp_path, text)
    await engine.load_adapter("x", str(adapter), preload=False, pin=False)
    chunks = await answer(engine, {"question": "a b c", "adapters": "x"})
    assert json.loads(text_of(chunks)) == {"generated_text": "of the"}


async def test_an_adapter_whose_code_is_broken_is_refused_whole(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "model.py").write_text("1 / 0", encoding="utf-8")
    engine = await started(tmp_path, READ)
    with pytest.raises(ConfigurationError, match=r"adapter/model.py:1: .*ZeroDivisionError"):
        await engine.load_adapter("x", str(adapter), preload=True, pin=False)
    with pytest.raises(RequestError, match="adapter 'x' is unknown"):
        await anext(stream(engine, [GenerateRequest("a", adapter="x")]))


async def test_without_an_engine_only_the_handler_answers(tmp_path: Path) -> None:
    engine = await started(tmp_path, "\ndef handle(inputs):\n    return None\n", None)
    with pytest.raises(RequestError, match="whose own handler reads LMI bodies"):
        await anext(stream(engine, [GenerateRequest("a")]))


async def test_an_asynchronous_handler_needs_no_engine(tmp_path: Path) -> None:
    text = """
        from djl_python import Output
        async def handle(inputs):
            if not inputs.is_empty() and inputs.get_as_json()["inputs"]:
                return Output().add("said")
            return None
    """
    engine = await started(tmp_path, text, None)
    for prompt, expected in {"a": ("said", 200), "": ("", 204)}.items():
        chunks = await answer(engine, {"inputs": prompt})
        assert (text_of(chunks), chunks[-1].status) == expected


class _FailingServer(EchoEngine):
    """An engine whose server reports an error as vLLM's does, among its events."""

    async def respond(self, request: HttpRequest, sink: ChunkSink) -> None:
        kind = {"content-type": "text/event-stream"}
        sink.take(HttpChunk(b'data: {"choices": []}\n\n', headers=kind))
        data = b'data: {"error": {"message": "it broke"}}\n\ndata: [DONE]\n\n'
        sink.take(HttpChunk(data, is_last=True, headers=kind))


async def test_a_formatter_does_not_get_an_engines_error_for_a_part(tmp_path: Path) -> None:
    engine = await started(tmp_path, WRITE, _FailingServer)
    with pytest.raises(EngineError, match="it broke"):
        await answer(engine, {"inputs": "a", "stream": True})


async def test_a_handler_that_raises_in_the_middle_ends_with_an_error(tmp_path: Path) -> None:
    text = """
        from djl_python import Output
        def words():
            yield {"a": 1}
            raise ValueError("it broke")
        def handle(inputs):
            if not inputs.is_empty():
                output = Output().add_property("content-type", "application/jsonlines")
                output.add_stream_content(words())
                return output
    """
    with pytest.raises(HttpError, match="it broke") as raised:
        await ask(tmp_path, text, {"question": "a"})
    assert raised.value.status == 424
