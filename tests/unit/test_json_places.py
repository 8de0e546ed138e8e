"""JSON of clients: no place reads a text of more values than it may have."""

import ast
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lmi_backend
from lmi_backend.clients.request import manages_adapters, model_named, read_request, wanted
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.errors import HttpError, LmiError
from lmi_backend.frontend.http.bodies import read_object, refuse_many_values
from lmi_backend.generation import HttpRequest
from lmi_backend.json_text import read_text
from lmi_backend.worker.handlers.provided.djl_python.encode_decode import decode
from lmi_backend.worker.handlers.provided.djl_python.inputs import Input

FOLDER = Path(lmi_backend.__file__).parent
MANY = f"[{'[],' * 7_000_000}0]"
OBJECT = f'{{"a":{MANY}}}'
DEEP = '{"a":[' + ("[" * 200 + "]" * 200 + ",") * 50_000 + "0]}"
WIDE = OBJECT[: 1 << 23].encode("utf-16")
BODIES = {"flat": OBJECT.encode(), "of few commas": DEEP.encode(), "in UTF-16": WIDE}
CONTEXTS = (
    Context(ClientSettings()),
    Context(ClientSettings(is_embedding=True)),
    Context(ClientSettings(), is_custom=True),
)
TENSORS: dict[str, dict[str, list[Any]]] = {
    "a body": {"request": [OBJECT]},
    "a body about adapters": {"request": [f'{{"requestType":"LIST_ADAPTERS","a":{MANY}}}']},
    "headers": {"request": ['{"inputs":"a"}'], "headers": [OBJECT]},
    "an embedding": {"embedding_request": [OBJECT]},
    "sampling parameters": {"text_input": ["a"], "sampling_parameters": [OBJECT]},
    **{
        f"the text for {name}": {"text_input": ["a"], name: [MANY]}
        for name in ("logit_bias", "max_tokens", "seed", "guided_json", "adapters", "stream")
    },
}
NOT_OF_CLIENTS = {
    "endpoint/loading.py": "a small file of a process of ours",
    "engines/bodies.py": "a body within the bounds of `check_body`",
    "engines/echo.py": "a body, for tests",
    "engines/tokens.py": "lists of texts and numbers that a stub has written",
    "engines/transformers/loading.py": "a file",
    "engines/trtllm/engine.py": "an option",
    "engines/vllm/chats.py": "members of a body that is small, or checked",
    "engines/vllm/grammar_trial.py": "a structure within its bounds",
    "engines/vllm/http_app.py": "an answer of vLLM's",
    "engines/vllm/layouts.py": "an event of vLLM's",
    "engines/vllm/self_test.py": "an event of vLLM's",
    "engines/vllm/starting.py": "an option, and a file that a process of ours has written",
    "clients/anthropic.py": "an event of vLLM's",
    "clients/request.py": "fields whose values are not read, or a body whose values are counted",
    "clients/lmi.py": "an answer",
    "clients/spec.py": "an answer",
    "clients/responses.py": "an event of vLLM's, and an answer",
    "clients/tgi.py": "an answer",
    "clients/trtllm.py": "an answer",
    "clients/triton.py": "members of known types, of a body whose values are counted",
    "endpoint/buffered.py": "the first event of an answer",
    "triton/model.py": "Triton's configuration of the model",
    "worker/handlers/formatters.py": "an answer",
    "worker/handlers/engine.py": "an answer",
    "worker/handlers/provided/djl_python/encode_decode.py": "an answer",
    "worker/handlers/provided/djl_python/inputs.py": "a small body",
    "worker/openai_engine.py": "a body within the bounds of `check_body`, and an answer",
}
"""Files that read JSON themselves, and of what."""


@pytest.fixture(autouse=True)
def few_values() -> Iterator[None]:
    """Show that no reader has made the values of a large text, whichever reader it is."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 12 * len(MANY)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("context", CONTEXTS, ids=["LMI", "embedding", "custom"])
@pytest.mark.parametrize("inputs", TENSORS.values(), ids=TENSORS.keys())
def test_a_tensor(inputs: dict[str, list[Any]], context: Context) -> None:
    with suppress(LmiError):
        read_request([inputs], {}, context)


@pytest.mark.parametrize("body", [OBJECT.encode(), DEEP.encode()], ids=["flat", "of few commas"])
@pytest.mark.parametrize("read", [read_object, refuse_many_values], ids=["an object", "counted"])
def test_the_front_end(read: Callable[[bytes], Any], body: bytes) -> None:
    with pytest.raises(HttpError) as refused:
        read(body)
    assert refused.value.status == 413


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_worker(body: bytes) -> None:
    with pytest.raises(LmiError, match="values"):
        check_body(body, BodyBounds())


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("name", ["prompt", "n", "model", "a"])
@pytest.mark.parametrize("values", [MANY, f"[NaN,{DEEP}]"], ids=["many", "many that are nested"])
def test_a_stub_that_counts_answers(path: str, name: str, values: str) -> None:
    request = HttpRequest(path, f'{{"{name}":{values}}}'.encode())
    for count in (wanted, model_named):
        with suppress(LmiError):
            count(request)


@pytest.mark.parametrize("name", ["requestType", "requestType\\u0000", "a"])
def test_a_request_about_adapters_is_told_by_its_name_alone(name: str) -> None:
    assert manages_adapters(f'{{"{name}":{MANY}}}') is (name == "requestType")


def test_users_code() -> None:
    inputs = Input()
    for data in (MANY.encode(), MANY.encode("utf-16"), OBJECT.encode()):
        inputs.content["data"] = data
        for read in (inputs.get_as_json, lambda: decode(inputs, "application/json")):
            with pytest.raises(ValueError, match="values"):
                read()


def test_users_code_gets_a_large_body_of_few_values() -> None:
    inputs = Input()
    given = {"inputs": "é" * 400_000, "image": [1.5] * 60_000, "n": float("inf")}
    for encoding in ("utf-8", "utf-16", "utf-32"):
        inputs.content["data"] = json.dumps(given, ensure_ascii=False).encode(encoding)
        assert inputs.get_as_json() == given


def test_a_text_of_few_values_is_read_as_json_reads_it() -> None:
    given = {"a": "[]," * 200_000, "b": "\ud83d" * 300_000, "c": [1e400, None]}
    for ascii_only in (True, False):
        assert read_text(json.dumps(given, ensure_ascii=ascii_only)) == given


def test_no_other_file_reads_json() -> None:
    found = Counter(
        str(file.relative_to(FOLDER))
        for part in ("clients", "endpoint", "engines", "pool", "serving", "triton", "worker")
        for file in sorted((FOLDER / part).rglob("*.py"))
        if "json" in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if _reads_json(node)
    )
    assert found.keys() == NOT_OF_CLIENTS.keys()


def _reads_json(node: ast.AST) -> bool:
    text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return text in ("json.loads", "json.load", "msgspec.json.decode", "msgspec.json.Decoder")
