"""Which bodies of embeddings are of one kind, what is learnt of it, and what is written then."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from lmi_backend.engines.bodies import BodyBounds
from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.engines.vllm.inside.counting_client import CountingClient
from lmi_backend.engines.vllm.inside.embedding_bodies import (
    MOST_CHARACTERS,
    MOST_INPUTS,
    EmbeddingBodies,
)
from lmi_backend.engines.vllm.inside.embedding_kind import NAME
from lmi_backend.engines.vllm.inside.known_embeddings import ENOUGH, KnownEmbeddings
from lmi_backend.engines.vllm.inside.learnt_kinds import AT_ONCE, MOST_KINDS, TRIES
from lmi_backend.generation import Continuation, HttpChunk, HttpRequest
from lmi_backend.structures import DEFAULT_BOUNDS
from tests.unit.test_cost import MARGIN, Calls

PATH = "/v1/embeddings"
LONGEST = 40
HELLO: dict[str, Any] = {"model": "m", "input": "hello"}
MADE_UP = "0123456789abcdef"
CALLS = 152
"""Of functions for one body of a text, with those of the stand-ins here."""
TIMES = 20


class Vector:
    """Has what is read of a tensor."""

    def __init__(self, ids: list[int]) -> None:
        self._values = numpy.array([1 / (each + 1) ** 3 for each in ids], dtype=numpy.float32)

    def tolist(self) -> list[float]:
        """Return its numbers."""
        return [float(each) for each in self._values]

    def numpy(self) -> Any:
        """Return it as an array."""
        return self._values


class AsyncLLM:
    """Has what is called of vLLM's."""

    def __init__(self) -> None:
        self.errored = False
        self.calls: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.model_config = SimpleNamespace(max_model_len=LONGEST)
        self.renderer = Renderer()
        self.is_held: asyncio.Event | None = None
        self.num_left = 0

    async def encode(
        self, prompt: Any, pooling_params: Any, request_id: str, lora_request: Any = None
    ) -> AsyncGenerator[Any, None]:
        """Yield a vector."""
        asked = {"prompt": prompt, "params": pooling_params, "request_id": request_id}
        self.calls.append(asked | {"lora": lora_request})
        try:
            if self.is_held is not None:
                await self.is_held.wait()
            if self.failure is not None:
                raise self.failure
            ids = prompt["prompt_token_ids"]
            yield SimpleNamespace(prompt_token_ids=ids, outputs=SimpleNamespace(data=Vector(ids)))
        finally:
            self.num_left += 1


class Renderer:
    """Has what is called of vLLM's."""

    def render_cmpl(self, prompts: list[Any], further: str, *, extras: Any = None) -> list[Any]:
        """Return prompts of tokens."""
        made = []
        for each in prompts:
            ids = each.get("prompt_token_ids") or [ord(letter) for letter in each["prompt"]]
            if len(ids) > LONGEST:
                raise ValueError("it is too long")
            made.append({"type": "token", "prompt_token_ids": list(ids), "further": further})
        return made


class Server:
    """Answers bodies as vLLM's server does."""

    request_logger = None

    def __init__(self, engine: AsyncLLM) -> None:
        self.renderer = engine.renderer
        self.client = CountingClient(engine, DEFAULT_BOUNDS, None, self)  # type: ignore[arg-type]
        self.answered: list[dict[str, Any]] = []
        self.more: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
        self.encode = self.client.encode
        self.render = self._render
        self.lora: Any = None
        self.is_reversed = False

    def _render(self, given: Any) -> Any:
        prompt = {"prompt": given} if isinstance(given, str) else {"prompt_token_ids": given}
        return self.renderer.render_cmpl([prompt], "f", extras={})[0]

    def is_loaded(self, name: str) -> bool:
        """Tell whether an adapter can be used."""
        return bool(name)

    async def respond(self, request: HttpRequest, sink: Any) -> None:
        """Answer a body."""
        body = json.loads(request.body)
        self.answered.append(body)
        given = body["input"]
        inputs = given if isinstance(given, list) and isinstance(given[0], (str, list)) else [given]
        answer_id = f"embd-{request.headers.get('x-request-id', MADE_UP)}"
        try:
            prompts = await asyncio.gather(*(asyncio.to_thread(self.render, i) for i in inputs))
        except ValueError as error:
            sink.take(HttpChunk(json.dumps({"error": str(error)}).encode(), True, 400))
            return
        params = SimpleNamespace(dimensions=body.get("dimensions"), **self.params)
        outputs = []
        for index, prompt in enumerate(reversed(prompts) if self.is_reversed else prompts):
            more = {"lora_request": self.lora} if self.lora else {}
            asked = {"pooling_params": params, "request_id": f"{answer_id}-{index}", **more}
            outputs += [each async for each in self.encode(prompt, **asked)]
        encoding = body.get("encoding_format", "float")
        data = json.dumps(written(answer_id, body, outputs, encoding) | self.more).encode()
        data = data.replace(b", ", b",").replace(b": ", b":")
        headers = {"content-length": str(len(data)), "content-type": "application/json"}
        sink.take(HttpChunk(data, is_last=True, headers=headers))


def written(answer_id: str, body: Any, outputs: list[Any], encoding: str) -> dict[str, Any]:
    num = sum(len(each.prompt_token_ids) for each in outputs)
    vectors = [
        each.outputs.data.tolist()
        if encoding == "float"
        else b64encode(each.outputs.data.numpy().tobytes()).decode()
        for each in outputs
    ]
    data = [
        {"index": index, "object": "embedding", "embedding": each}
        for index, each in enumerate(vectors)
    ]
    usage = {"prompt_tokens": num, "total_tokens": num, "completion_tokens": 0, "details": None}
    ours = {"id": answer_id, "object": "list", "created": 7, "model": body.get("model", "m")}
    return {**ours, "data": data, "usage": usage}


class Sink:
    """Keeps an answer."""

    def __init__(self) -> None:
        self.chunks: list[HttpChunk] = []

    def take(self, chunk: HttpChunk) -> None:
        """Take a chunk."""
        self.chunks.append(chunk)


class Rig:
    """An engine, its server, and what is known of its answers."""

    def __init__(self) -> None:
        self.engine = AsyncLLM()
        self.server = Server(self.engine)
        adapters: Any = SimpleNamespace(has=lambda name: name == "adapter")
        self.known = KnownEmbeddings(self.engine, BodyBounds(max_model_len=LONGEST), adapters)
        self.attach()

    def attach(self) -> None:
        """Attach it."""
        state = SimpleNamespace(serving_embedding=self.server)
        self.known.attach(SimpleNamespace(state=state, routes=[]))

    async def ask(self, body: Any, headers: dict[str, str] | None = None) -> HttpChunk:
        """Return an answer."""
        sink: Any = Sink()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.known.respond(HttpRequest(PATH, data, headers or {}), sink, self.server.respond)
        (chunk,) = sink.chunks
        assert isinstance(chunk, HttpChunk)
        return chunk

    async def teach(self, body: Any, headers: dict[str, str] | None = None) -> None:
        """Have a body answered until its kind is known."""
        for _ in range(ENOUGH):
            await self.ask(body, headers)

    async def is_known(self, body: Any, headers: dict[str, str] | None = None) -> bool:
        """Tell whether the server sees nothing of a body."""
        before = len(self.server.answered)
        await self.ask(body, headers)
        return len(self.server.answered) == before


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setitem(vars(names), "AsyncLLM", AsyncLLM)
    monkeypatch.setattr("lmi_backend.engines.vllm.inside.known_embeddings.time.time", lambda: 7.5)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def comparable(chunk: HttpChunk) -> Any:
    return chunk.status, list(chunk.headers.items()), chunk.is_last, chunk.data


@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "base64"}, {"dimensions": 3}])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("hello", "other words, née"),
        ([5, 6, 7], [1]),
        (["a"], ["b c"]),
        (["a", "b c"], ["the same", "the same"]),
        ([[1, 2], [3]], [[39], list(range(1, 40))]),
    ],
)
def test_a_third_answer_has_the_bytes_of_the_server(
    rig: Rig, encoding: Any, first: Any, then: Any
) -> None:
    async def run() -> None:
        headers = {"x-request-id": "9", "content-type": "application/json"}
        await rig.teach(HELLO | encoding | {"input": first}, headers)
        body = HELLO | encoding | {"input": then}
        ours = await rig.ask(body, headers)
        assert len(rig.server.answered) == ENOUGH
        sink: Any = Sink()
        await rig.server.respond(HttpRequest(PATH, json.dumps(body).encode(), headers), sink)
        (theirs,) = sink.chunks
        assert comparable(ours) == comparable(theirs)
        num = len(rig.engine.calls) // (ENOUGH + 2)
        assert rig.engine.calls[-2 * num : -num] == rig.engine.calls[-num:]

    asyncio.run(run())
    assert fast_paths.is_on(NAME)


def test_ids_are_made_up(rig: Rig) -> None:
    async def run() -> list[str]:
        await rig.teach(HELLO)
        return [json.loads((await rig.ask(HELLO)).data)["id"] for _ in range(5)]

    ids = asyncio.run(run())
    assert len(rig.server.answered) == ENOUGH
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {len(f"embd-{MADE_UP}")}


@pytest.mark.parametrize(
    "other",
    [
        {"input": ["hello"]},
        {"input": [5]},
        {"input": ["a", "b"]},
        {"dimensions": 3},
        {"encoding_format": "float"},
        {"model": "n"},
    ],
)
def test_each_other_value_is_another_kind(rig: Rig, other: dict[str, Any]) -> None:
    async def run() -> None:
        await rig.teach(HELLO)
        assert await rig.is_known(HELLO | {"user": "someone"})
        assert not await rig.is_known(HELLO | other)
        assert not await rig.is_known(HELLO, {"x-request-id": "7"})

    asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m"},
        HELLO | {"input": ""},
        HELLO | {"input": []},
        HELLO | {"input": ["a", ""]},
        HELLO | {"input": [[], [1]]},
        HELLO | {"input": ["a", 1]},
        HELLO | {"input": [1, [1]]},
        HELLO | {"input": [True]},
        HELLO | {"input": [1.0]},
        HELLO | {"input": {"a": 1}},
        HELLO | {"input": None},
        HELLO | {"input": ["a"] * (MOST_INPUTS + 1)},
        HELLO | {"input": "a" * (MOST_CHARACTERS + 1)},
        HELLO | {"encoding_format": "bytes"},
        HELLO | {"encoding_format": None},
        HELLO | {"user": 5},
        HELLO | {"user": None},
        HELLO | {"truncate_prompt_tokens": 3},
        HELLO | {"messages": []},
        HELLO | {"model": "a" * 5000},
        b'{"input": "\\ud800", "model": "m"}',
        b'{"input": "a", "dimensions": NaN}',
        b"\xef\xbb\xbf" + json.dumps(HELLO).encode(),
        b"[]",
        b"",
    ],
)
def test_what_is_not_listed_is_of_no_kind(body: Any) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert EmbeddingBodies(0).read(HttpRequest(PATH, data, {})) is None


@pytest.mark.parametrize(
    "headers",
    [{"traceparent": "00-1-2-03"}, {"content-type": "text/plain"}, {"origin": "https://a.b"}],
)
def test_a_header_that_the_server_may_read_is_of_no_kind(headers: dict[str, str]) -> None:
    data = json.dumps(HELLO).encode()
    bodies = EmbeddingBodies(0)
    assert bodies.read(HttpRequest(PATH, data, {"X-Request-Id": "7"})) is not None
    assert bodies.read(HttpRequest(PATH, data, headers)) is None
    assert bodies.read(HttpRequest(PATH, data, {}, Continuation(b""))) is None
    assert EmbeddingBodies(len(data) - 1).read(HttpRequest(PATH, data, {})) is None


def test_few_kinds_are_kept_those_that_came_last() -> None:
    bodies = EmbeddingBodies(0)

    def kind(more: dict[str, Any]) -> Any:
        found = bodies.read(HttpRequest(PATH, json.dumps(HELLO | more).encode(), {}))
        return found.kind if found is not None else None

    first, second = kind({}), kind({"dimensions": -1})
    for number in range(MOST_KINDS - 1):
        kind({"dimensions": number})
        assert kind({}) is first
    assert kind({"dimensions": -1}) is not second


def test_an_adapter_that_gets_a_kinds_name_is_the_servers(rig: Rig) -> None:
    async def run() -> None:
        await rig.teach(HELLO | {"model": "adapter"})
        assert not await rig.is_known(HELLO | {"model": "adapter"})

    asyncio.run(run())


@pytest.mark.parametrize("body", [HELLO | {"input": "a" * 41}, HELLO | {"input": [5] * 41}])
def test_what_is_refused_is_refused_by_the_server(rig: Rig, body: Any) -> None:
    async def run() -> None:
        await rig.teach(HELLO | {"input": [1]})
        await rig.teach(HELLO)
        assert (await rig.ask(body)).status == 400
        assert rig.server.answered[-1] == body

    asyncio.run(run())
    assert fast_paths.is_on(NAME)


def test_a_fault_of_the_engine_is_raised_as_the_server_does(rig: Rig) -> None:
    async def run() -> None:
        await rig.teach(HELLO)
        rig.engine.failure, rig.engine.errored = RuntimeError("dead"), True
        with pytest.raises(RuntimeError, match="dead"):
            await rig.ask(HELLO)

    asyncio.run(run())
    assert fast_paths.is_on(NAME)


def test_a_path_that_fails_where_the_server_does_not_is_turned_off(rig: Rig) -> None:
    async def run() -> None:
        await rig.teach(HELLO)

        async def other(**_: Any) -> AsyncGenerator[Any, None]:
            raise TypeError("it takes no request_id")
            yield

        rig.engine.encode, rig.server.encode = other, rig.engine.encode  # type: ignore
        assert (await rig.ask(HELLO)).status == 200

    asyncio.run(run())
    assert "it takes no request_id" in fast_paths.states()[NAME]


def _unrendered(given: Any) -> Any:
    return {"type": "token", "prompt_token_ids": [ord(letter) for letter in given]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda server: setattr(server, "render", _unrendered), "render_cmpl has made"),
        (lambda server: setattr(server, "encode", server.client._engine.encode), "0 times for 1"),
        (lambda server: server.more.update(id="another"), "has the id another"),
        (lambda server: server.more.update(note="unknown"), "is written otherwise"),
        (lambda server: server.more.update(created="today"), "is written otherwise"),
        (lambda server: server.more.update(data=[{"embedding": [1.5]}]), "is written otherwise"),
    ],
)
def test_a_server_of_other_ways_turns_the_path_off_by_name(rig: Rig, change: Any, why: str) -> None:
    change(rig.server)
    asyncio.run(rig.teach(HELLO))
    assert why in fast_paths.states()[NAME]
    assert asyncio.run(rig.ask(HELLO)).status == 200


def test_a_server_that_changes_the_order_turns_the_path_off(rig: Rig) -> None:
    rig.server.is_reversed = True
    asyncio.run(rig.teach(HELLO | {"input": ["a", "b"]}))
    assert "render_cmpl has made of an input" in fast_paths.states()[NAME]


def test_answers_that_differ_turn_the_path_off(rig: Rig) -> None:
    async def run() -> None:
        for number in range(ENOUGH):
            rig.server.params = {"seed": number}
            await rig.ask(HELLO)

    asyncio.run(run())
    assert "made in two ways" in fast_paths.states()[NAME]


def test_further_arguments_are_of_no_kind(rig: Rig) -> None:
    rig.server.lora = SimpleNamespace(lora_name="some")

    async def run() -> None:
        for _ in range(TRIES + 1):
            await rig.ask(HELLO)
        assert not next(iter(rig.known._bodies._kinds.values())).may_learn
        assert not await rig.is_known(HELLO)

    asyncio.run(run())
    assert fast_paths.is_on(NAME)


def test_many_like_bodies_at_once_are_learnt_from(rig: Rig) -> None:
    async def run() -> None:
        await rig.ask(HELLO)
        await asyncio.gather(*(rig.ask(HELLO) for _ in range(4 * AT_ONCE)))
        assert rig.known._lessons == []
        assert await rig.is_known(HELLO)

    asyncio.run(run())
    assert fast_paths.is_on(NAME)


def test_a_client_that_leaves_leaves_nothing_running(rig: Rig) -> None:
    async def run() -> None:
        body = HELLO | {"input": ["a", "b"]}
        await rig.teach(body)
        rig.engine.is_held, before = asyncio.Event(), len(rig.engine.calls)
        asking = asyncio.ensure_future(rig.ask(body))
        while len(rig.engine.calls) < before + 2:  # noqa: ASYNC110  a turn, and no time
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while rig.engine.num_left < before + 2:  # noqa: ASYNC110  a turn, and no time
            await asyncio.sleep(0)

    asyncio.run(run())
    assert fast_paths.is_on(NAME)


def test_prompts_of_other_sorts_pass_the_renderer(rig: Rig) -> None:
    class Other:
        def render_cmpl(self, prompts: Any, *_: Any, **__: Any) -> Any:
            return prompts

    rig.server.renderer = Other()  # type: ignore[assignment]
    rig.attach()
    rig.known._lessons.append(SimpleNamespace())  # type: ignore[arg-type]
    for prompts in ([b"a"], [{"prompt": "a"}], [{"prompt_embeds": 1}], []):
        assert rig.server.renderer.render_cmpl(prompts=prompts, further="f") == prompts
        assert rig.server.renderer.render_cmpl(prompts, "f") == prompts


def test_what_logs_each_request_or_cuts_texts_leaves_it_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.server, "request_logger", object())
    rig.attach()
    assert "enable_log_requests" in fast_paths.states()[NAME]
    fast_paths._off.clear()
    rig.engine.model_config.pooler_config = SimpleNamespace(enable_chunked_processing=True)
    rig.attach()
    assert "pooler_config" in fast_paths.states()[NAME]


def test_an_engine_that_makes_no_vectors_is_left_alone(rig: Rig) -> None:
    rendering = rig.engine.renderer.render_cmpl
    for state in (SimpleNamespace(), SimpleNamespace(serving_embedding=None)):
        rig.known.attach(SimpleNamespace(state=state, routes=[]))
    assert rig.engine.renderer.render_cmpl == rendering
    assert fast_paths.is_on(NAME)
    rig.known.attach(SimpleNamespace(state=SimpleNamespace(), routes=[SimpleNamespace(path=PATH)]))
    assert "no serving_embedding" in fast_paths.states()[NAME]


def test_an_engine_without_its_names_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.engine, "renderer", SimpleNamespace())
    rig.attach()
    assert "render_cmpl" in fast_paths.states()[NAME]
    fast_paths._off.clear()
    monkeypatch.setattr(rig.engine, "renderer", Renderer())
    monkeypatch.setattr(AsyncLLM, "encode", lambda *_: None)
    rig.attach()
    assert "encode yields no outputs" in fast_paths.states()[NAME]


def test_what_a_known_body_costs(rig: Rig) -> None:
    calls = Calls()

    async def run() -> None:
        await rig.teach(HELLO)
        with calls.counted():
            for _ in range(TIMES):
                await rig.ask(HELLO)

    asyncio.run(run())
    assert len(rig.server.answered) == ENOUGH
    assert calls.count / TIMES <= CALLS * MARGIN
