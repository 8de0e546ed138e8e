"""The front end answers Triton's `generate` as Triton's own HTTP port does, byte for byte."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.serving import SETTLING, Served, serve, write_properties
from tests.support.waiting import HANG_SECONDS, wait_for

_TRIES = 5
"""Of a stream: tokens that come together share an event, which is chance."""
_CONTROLS = "".join(map(chr, range(1, 32)))
_RETURNS = (
    "return_finish_reason", "return_cumulative_logprob", "return_logprobs",
    "return_num_input_tokens", "return_num_output_tokens",
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("generate")
    properties: dict[str, Any] = {
        "option.rolling_batch": "echo",
        "option.token_seconds": 0.004,
        "option.stream_flush_ms": 0,
        "option.fail_on": "fail",
    }
    with serve([write_properties(folder / "echo", properties)], folder) as served:
        wait_for(lambda: served.ask("/ping")[0] == 200)
        yield served


def text(prompt: str = "a b", **more: Any) -> dict[str, Any]:
    return {"text_input": prompt, "max_tokens": 5, "stream": False, **more}


def with_all(**more: Any) -> dict[str, Any]:
    return text() | dict.fromkeys(_RETURNS, True) | more


def asked(**more: Any) -> str:
    return json.dumps({"max_tokens": 3, **more})


BODIES: dict[str, Any] = {
    "plain": text(),
    "unicode": text("ä € 😀 \u2028 \u00a0x \x7f"),
    "control characters": text(_CONTROLS + "x"),
    "quotes and slashes": text('"a" \\b /c \\u00e9 \\'),
    "an emoji over tokens": text("👩‍👩 ‍👧 🇮 🇹"),
    "long": text("word " * 3000, max_tokens=100),
    "no limit": {"text_input": "a b c d e f g h i j k l m n o p q r s t"},
    "without its prompt": text(exclude_input_in_output=True),
    "with its prompt": text(exclude_input_in_output=False),
    "every output": with_all(),
    "every output and logprobs": with_all(logprobs=1),
    "no output": text() | dict.fromkeys(_RETURNS, False),
    "sampling_parameters": text(sampling_parameters=asked(stop=["b"], temperature="0.7")),
    "temperature 0.1": text(temperature=0.1, top_p=0.30000000000000004, seed=7),
    "streamed": text(stream=True),
    "streamed, one token": text(stream=True, max_tokens=1),
    "streamed, every output": with_all(stream=True, logprobs=1),
    "streamed, an id": text(stream=True, id="7"),
    "streamed, n": with_all(stream=True, n=2),
    "streamed, control characters": text(_CONTROLS + " é", stream=True, max_tokens=3),
    "streamed LMI": {"inputs": "a é", "stream": True, "parameters": {"max_new_tokens": 3}},
    "a prompt that fails": text("fail"),
    "a prompt that fails, streamed": text("fail", stream=True),
    "a prompt too long": text("word " * 5000),
    "parameters": {"text_input": "a b", "parameters": {"max_tokens": 2, "stream": True}},
    "a tensor among parameters": {"text_input": "a", "parameters": {"stop": ["x", "a"]}},
    "both": {"text_input": "a b", "max_tokens": 1, "parameters": {"max_tokens": 3}},
    "lists of one": {"text_input": ["a b"], "stream": [False], "max_tokens": 2},
    "an id": text(id='of "mine" é'),
    "an empty id": text(id=""),
    "an id among parameters": text(parameters={"id": "inner"}),
    "unknown keys": text(colour="blue", depth=1.5, is_odd=True, priority=0),
    "a tenant": text(tenant="blue"),
    "a trace": text(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    "a broken trace": text(traceparent="never"),
    "stop": text("a b c", stop=["b"], return_finish_reason=True),
    "n": with_all(n=3),
    "tensors of numbers": text(sampling_param_temperature=0.7, sampling_param_seed=2**62),
    "TensorRT-LLM's": {"text_input": "a", "max_tokens": 3, "bad_words": "", "stop_words": ""},
    "LMI": {"inputs": "a b", "parameters": {"max_new_tokens": 3}},
    "LMI, details": {"inputs": "a b", "parameters": {"max_new_tokens": 3, "details": True}},
    "LMI, full text": {"inputs": "a", "parameters": {"return_full_text": True}},
    "LMI, two prompts": {"inputs": ["a b", "c é"], "parameters": {"max_new_tokens": 3}},
    "LMI, two answers": {"inputs": "a b", "parameters": {"max_new_tokens": 3, "n": 2}},
    "LMI, formatted": {"inputs": "a", "parameters": {"output_formatter": "jsonlines"}},
    "LMI, whole": {"request": '{"inputs": "a \\u00e9", "parameters": {"details": true}}'},
    "OpenAI, whole": {"request": '{"messages": [{"role": "user", "content": "é\\n"}]}'},
    "lines": {"request": '{"prompt":\n"é"\n}'},
}
"""What the front end answers."""

OTHERS: dict[str, Any] = {
    "nothing": {},
    "no prompt": {"max_tokens": 3},
    "two prompts": {"text_input": "a", "inputs": "b"},
    "a list of two": {"text_input": ["a", "b"]},
    "a number as text": {"text_input": 7},
    "null": text(temperature=None),
    "a list as parameter": text(colours=["blue"]),
    "an object as parameter": text(colours={}),
    "a word as number": text(max_tokens="many"),
    "less than nothing": text(max_tokens=-1),
    "a word as a bool": text(stream="yes"),
    "parameters, no object": text(parameters=[1]),
    "a number as id": text(id=5),
    "a control character in an id": text(id="a\nb"),
    "an empty list": text(stop=[]),
    "a list in a list": text(stop=[["a"]]),
    "a number too large": text(sampling_param_top_k=2**40),
    "not a whole number": text(sampling_param_top_k=1.5),
    "a NUL": text(colour="a\0b"),
    "a timeout": text(timeout=10_000_000),
    "an adapter": text(adapters="none"),
    "adapters listed": {"request": '{"requestType": "LIST_ADAPTERS"}'},
    "a prompt that is not shown": {"text_input": "a", "stream": True,
                                   "exclude_input_in_output": False},
}  # fmt: skip
"""What Triton answers."""


@pytest.mark.parametrize("stream", ["", "_stream"])
@pytest.mark.parametrize("name", [*BODIES, *OTHERS])
def test_both_ports_say_the_same(server: Served, name: str, stream: str) -> None:
    _compare(server, f"/v2/models/echo/generate{stream}", (BODIES | OTHERS)[name])


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/echo/versions/1/generate", "/v2/models/echo/versions/2/generate",
        "/v2/models/none/generate", "/v2/models/echo/versions/1/generate_stream",
        "/v2/models/lmi/generate",
    ],
)  # fmt: skip
def test_models_and_versions_are_those_of_triton(server: Served, path: str) -> None:
    _compare(server, path, text())


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[1]", b'{"text_input": "a"', b'{"text_input": "a", "n": 1e999}',
        b'{"text_input": "\\ud800"}',
        b'{"text_input": "a", "parameters": {"parameters": {"n": 1}}}',
    ],
)  # fmt: skip
def test_what_is_no_body_is_the_clients_fault_here_alone(server: Served, body: bytes) -> None:
    statuses = [
        _ask(port, "/v2/models/echo/generate", body)[0] for port in (server.port, server.http_port)
    ]
    assert statuses[0] == 400 <= statuses[1]


def test_of_two_members_the_last_counts_here_alone(server: Served) -> None:
    body = b'{"text_input": "a", "text_input": "b", "max_tokens": 1}'
    answer = _ask(server.port, "/v2/models/echo/generate", body)
    assert (answer[0], json.loads(answer[2])["text_output"]) == (200, "bb")
    assert _ask(server.http_port, "/v2/models/echo/generate", body)[0] == 400


def test_triton_hears_nothing_of_what_the_front_end_answers(server: Served) -> None:
    before = _heard(server)
    for body in BODIES.values():
        _ask(server.port, "/v2/models/echo/generate", json.dumps(body).encode())
    assert _heard(server) == before + SETTLING
    _ask(server.port, "/v2/models/echo/generate", json.dumps(OTHERS["a timeout"]).encode())
    assert _heard(server) == before + 2 * SETTLING + 1


def test_the_access_log_and_a_key_have_its_tokens(server: Served) -> None:
    _ask(server.port, "/v2/models/echo/versions/1/generate", json.dumps(text(id="7")).encode())
    server.logged(r"/versions/1/generate status=200 .* prompt_tokens=2 tokens=5 ")


def _heard(server: Served) -> int:
    """Return how many requests Triton has handed to the model, once the last is counted."""
    return int(server.settled("nv_inference_request_success", "echo"))


def _compare(server: Served, path: str, body: Any, method: str = "POST") -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    for left in reversed(range(_TRIES)):
        ports = server.port, server.http_port
        answer, expected = (_ask(port, path, data, method) for port in ports)
        if path.endswith("_stream"):
            # Readers of lines split Triton's event here; ours has the same JSON on one line.
            expected = (*expected[:2], expected[2].replace(b"\xe2\x80\xa8", b"\\u2028"))
        if answer == expected:
            return
        assert left, f"{answer}\n{expected}"


def _ask(port: int, path: str, data: bytes, method: str = "POST") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    with closing(connection):
        connection.request(method, path, data)
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read()
