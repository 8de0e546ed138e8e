"""Users' handlers, written as LMI's users write them."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.worker.handlers.custom_code import load_custom_code
from lmi_backend.worker.handlers.runner import HandlerRunner

ROOT = Path(__file__).resolve().parents[4]
BODY = json.dumps({"inputs": "you"}).encode()
CSV = {"content-type": "text/csv"}
HANDLER = """
    from djl_python import Output
    from djl_python.encode_decode import decode, encode
    def handle(inputs):
        if inputs.is_empty():
            return None
        output = Output()
        {}
        return output
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "model.py"
    file.write_text(dedent(text), encoding="utf-8")
    return file


async def run(
    folder: Path, text: str, body: bytes = BODY, headers: dict[str, str] | None = None
) -> list[HttpChunk | None]:
    code = load_custom_code(write(folder, text))
    assert code.handler is not None
    runner = HandlerRunner(code.handler, {"greeting": "hello", "model_dir": str(folder)})
    await runner.start()
    return [chunk async for chunk in runner.run(HttpRequest("/invocations", body, headers or {}))]


def text_of(chunks: list[HttpChunk | None]) -> str:
    return b"".join(chunk.data for chunk in chunks if chunk is not None).decode()


async def test_the_handler_of_the_documentation_answers(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "migrating-from-lmi.md").read_text("utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    assert json.loads(text_of(await run(tmp_path, example))) == {"length": 3}


async def test_a_handler_loads_with_an_empty_input_and_then_answers(tmp_path: Path) -> None:
    chunks = await run(
        tmp_path,
        """
        from djl_python import Input, Output
        greeting = None

        def handle(inputs: Input) -> Output:
            global greeting
            if inputs.is_empty():
                greeting = inputs.get_property("Greeting")
                return None
            data = inputs.get_as_json()
            output = Output().add_property("X-Reply", "1")
            return output.add_as_json({"said": f"{greeting} {data['inputs']}"})
        """,
    )
    assert json.loads(text_of(chunks)) == {"said": "hello you"}
    # Contents are one chunk, however long: Triton's `generate` takes one response.
    (chunk,) = chunks
    assert chunk is not None
    assert (chunk.status, chunk.headers["x-reply"], chunk.is_last) == (200, "1", True)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ("iter(['a', 'b'])", '{"outputs": ["a"]}\n{"outputs": ["b"]}\n'),
        ("iter(['a', 'b']), output_formatter=lambda item: item.upper()", "AB"),
        ("letters()", '{"outputs": ["a"]}\n'),
    ],
)
async def test_a_stream_comes_in_chunks(tmp_path: Path, stream: str, expected: str) -> None:
    letters = "\n    async def letters():\n        yield 'a'\n"
    text = letters + HANDLER.format(f"output.add_stream_content({stream})")
    assert text_of(await run(tmp_path, text)) == expected


async def test_an_asynchronous_generator_answers_in_chunks(tmp_path: Path) -> None:
    chunks = await run(
        tmp_path,
        """
        from djl_python.async_utils import create_stream_chunk_output, handle_streaming_response
        async def words():
            yield "a"
            yield "b"
        async def handle(inputs):
            if not inputs.is_empty():
                async for output in handle_streaming_response(words(), lambda word: {"w": word}):
                    yield output
        """,
    )
    assert text_of(chunks) == '{"w": "a"}\n{"w": "b"}\n'


async def test_none_leaves_the_request_to_the_engine_only_where_it_is_asynchronous(
    tmp_path: Path,
) -> None:
    assert await run(tmp_path, "async def handle(inputs):\n    return None\n") == [None]
    (chunk,) = await run(tmp_path, "def handle(inputs):\n    return None\n")
    assert chunk is not None
    assert chunk.status == 204


async def test_a_handler_that_raises_answers_as_lmi_does(tmp_path: Path) -> None:
    text = """
        def handle(inputs):
            if not inputs.is_empty():
                raise {error}
    """
    (chunk,) = await run(tmp_path, text.replace("{error}", "KeyError('x')"))
    assert chunk is not None
    assert (chunk.status, chunk.is_last) == (424, True)
    expected = {"code": 424, "message": "invoke handler failure", "error": "'x'"}
    assert json.loads(chunk.data) == expected
    (chunk,) = await run(tmp_path, text.replace("def", "async def").format(error="OSError('y')"))
    assert chunk is not None
    what = "service.invoke_handler_async() failure"
    assert json.loads(chunk.data) == expected | {"message": what, "error": "y"}
    (chunk,) = await run(tmp_path, text.replace("{error}", "MemoryError()"))
    assert chunk is not None
    assert chunk.status == 507


@pytest.mark.parametrize(
    ("statement", "status", "header", "data"),
    [
        ("output.code = '404'", 404, None, b""),
        ("output.properties['X'] = 5", 200, "5", b""),
        ("output.properties[b'X'] = b'y'", 200, "y", b""),
        ("output.properties['X'] = '\\ud800'", 200, "?", b""),
        ("output.properties['X'] = None", 200, None, b""),
        ("output.properties['X'] = 'a\\r\\nb: c'", 200, "a b: c", b""),
        ("output.content.append((None, 'text'))", 200, None, b"text"),
        ("output.content.append((None, bytearray(b'text')))", 200, None, b"text"),
        ("output.content.append((None, None))", 200, None, b""),
        ("output.content.append((None, [1]))", 200, None, b"[1]"),
        ("output.add_stream_content([b'a', None, '\\ud800'], lambda item: item)", 200, None, b"a?"),
        ("output.add_stream_content([[1], {}], lambda item: item)", 200, None, b"[1]{}"),
        ("output.finalizer = 5", 200, None, b""),
    ],
)
async def test_values_of_other_types_are_converted(
    tmp_path: Path, statement: str, status: int, header: str | None, data: bytes
) -> None:
    chunks = [each for each in await run(tmp_path, HANDLER.format(statement)) if each is not None]
    assert (chunks[0].status, chunks[0].headers.get("x")) == (status, header)
    assert b"".join(chunk.data for chunk in chunks) == data
    # As the worker sends them, and its stub reads them.
    messages = [msg.Output(1, chunk) for chunk in chunks]
    assert FrameDecoder(msg.FromWorker, limit=1 << 20).feed(encode(messages)) == messages


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("output.code = 'bad'", "invalid literal for int"),
        ("output.code = 99", "the code of an Output is 99; accepted: 100 to 599"),
        ("output.code = None", "int() argument must be"),
        ("output.properties = None", "'NoneType' object has no attribute 'items'"),
        ("output.properties['a b'] = 'x'", "the property 'a b' cannot be the name of an HTTP"),
        ("output.properties['a:\\n'] = 'x'", "cannot be the name of an HTTP header"),
        ("output.properties = []", "'list' object has no attribute 'items'"),
        ("output.content = None", "'NoneType' object is not iterable"),
        ("output.content = [5]", "cannot unpack non-iterable int object"),
        ("output.content.append((None, object()))", "Object of type object is not JSON"),
        ("output.stream_content = 5", "'int' object is not iterable"),
        ("output = 'no Output'", "'str' object has no attribute"),
    ],
)
async def test_values_that_have_no_meaning_are_an_error_of_the_handler(
    tmp_path: Path, statement: str, reason: str
) -> None:
    (chunk,) = await run(tmp_path, HANDLER.format(statement))
    assert chunk is not None
    assert (chunk.status, chunk.is_last) == (424, True)
    assert reason in json.loads(chunk.data)["error"]


async def test_what_is_to_be_done_at_the_end_is_done(tmp_path: Path) -> None:
    done = str(tmp_path / "done")
    await run(tmp_path, HANDLER.format(f"import os; output.finalize(os.mkdir, {done!r})"))
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise OSError('no disk')", "failed to load its model: OSError: no disk"),
        ("return Output().error('too big', 507)", "out of memory: .*too big"),
        ("return Output(code=500, message='bad')", "code 500: bad"),
    ],
)
async def test_a_handler_that_cannot_load_fails_the_load(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await run(tmp_path, f"from djl_python import Output\ndef handle(inputs):\n    {text}\n")


async def test_sagemakers_functions_are_a_handler(tmp_path: Path) -> None:
    text = """
        def model_fn(model_dir):
            return str.upper
        def input_fn(body, content_type):
            return body.decode() + content_type
        def predict_fn(data, model):
            return model(data)
    """
    answer = text_of(await run(tmp_path, text, b"hi ", {"Content-Type": "text/plain"}))
    assert json.loads(answer) == "HI TEXT/PLAIN"


INIT = """
    from djl_python.input_parser import init_handler, input_formatter, predict_handler
    from djl_python.output_formatter import output_formatter
    @init_handler
    def load(model_dir):
        return lambda word: word.upper() + str(model_dir)[:1]
"""
PREDICT = """
    @predict_handler
    def predict(data, model):
        return model(data["inputs"])
"""
FORMAT = """
    @input_formatter
    def read(data, **kwargs):
        return {"inputs": data["question"]}
    @output_formatter
    def write(prediction):
        return f"<{prediction}>"
"""


@pytest.mark.parametrize(
    ("further", "body", "answer"),
    [("", b'{"inputs": "hi"}', '"HI/"'), (FORMAT, b'{"question": "hi"}', "<HI/>")],
)
async def test_a_predict_handler_gets_what_the_init_handler_loaded(
    tmp_path: Path, further: str, body: bytes, answer: str
) -> None:
    headers = {"Content-Type": "application/json"}
    assert text_of(await run(tmp_path, INIT + PREDICT + further, body, headers)) == answer


async def test_an_init_handler_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"init_handler.*predict_handler next to it"):
        await run(tmp_path, INIT)


def test_a_file_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "import json\nimport no_such_module\n")
    with pytest.raises(ConfigurationError, match=rf"{file}:2: cannot be imported: ModuleNotFound"):
        load_custom_code(file)


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("text/csv", b"inputs\nx\ny\n", {"inputs": ["x", "y"]}),
        ("text/csv", b"Question,context\nq,c\n", {"inputs": [{"Question": "q", "context": "c"}]}),
        ("text/plain", b"x", {"inputs": ["x"]}),
        ("application/x-www-form-urlencoded", b"inputs=x&more=y", {"inputs": "x"}),
        ("", b"", {"inputs": ""}),
    ],
)
async def test_bodies_are_read_by_their_type(
    tmp_path: Path, kind: str, body: bytes, value: Any
) -> None:
    text = HANDLER.format("output = encode(output, decode(inputs))")
    assert json.loads(text_of(await run(tmp_path, text, body, {"Content-Type": kind}))) == value


@pytest.mark.parametrize("name", ["content-type", "Content-Type", "CONTENT-TYPE"])
@pytest.mark.parametrize("asked", ["content-type", "Content-Type"])
async def test_the_type_of_a_body_is_the_clients(tmp_path: Path, name: str, asked: str) -> None:
    text = HANDLER.format(f"output.add(str(inputs.get_property({asked!r})))")
    assert text_of(await run(tmp_path, text, headers={name: "text/csv"})) == "text/csv"
    assert text_of(await run(tmp_path, text)) == "None"


async def test_a_form_has_a_content_for_each_field(tmp_path: Path) -> None:
    keys = "inputs.get_content().get_keys()"
    text = HANDLER.format(f"output.add_as_json([{keys}, inputs.get_as_string()])")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = text_of(await run(tmp_path, text, b"inputs=a+b&more=%C3%A9", form))
    assert json.loads(answer) == [["inputs", "more"], "a b"]
    # curl calls JSON a form where it is not told otherwise.
    assert json.loads(text_of(await run(tmp_path, text, BODY, form))) == [["data"], BODY.decode()]
    assert json.loads(text_of(await run(tmp_path, text, b"", form))) == [["data"], ""]


NUMBERS = ", require_csv_headers=False"


def decoding(arguments: str) -> str:
    return HANDLER.format(f"output = encode(output, decode(inputs, 'text/csv'{arguments}))")


async def test_csv_may_have_numbers_alone(tmp_path: Path) -> None:
    chunks = await run(tmp_path, decoding(NUMBERS), b"1,2\n3,4\n", CSV)
    assert json.loads(text_of(chunks)) == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("body", "arguments", "error"),
    [
        (b"1,2\n", "", "the first line of the CSV '1,2' names no column; accepted: question, "),
        (b"", "", "the first line of the CSV '' names no column"),
        (b"a,b\n", NUMBERS, "the CSV holds something that is not a number"),
    ],
)
async def test_csv_that_is_none_is_an_error(
    tmp_path: Path, body: bytes, arguments: str, error: str
) -> None:
    (chunk,) = await run(tmp_path, decoding(arguments), body, CSV)
    assert chunk is not None
    assert json.loads(chunk.data)["error"].startswith(error)


async def test_rows_are_written_as_csv_where_csv_is_accepted(tmp_path: Path) -> None:
    rows = "[{'a': 1, 'b': 'x,y'}], inputs.get_property('Accept')"
    text = HANDLER.format(f"output = encode(output, {rows})")
    assert text_of(await run(tmp_path, text, headers={"Accept": "text/csv"})) == (
        'a,b\r\n1,"x,y"\r\n'
    )
    assert json.loads(text_of(await run(tmp_path, text))) == [{"a": 1, "b": "x,y"}]
