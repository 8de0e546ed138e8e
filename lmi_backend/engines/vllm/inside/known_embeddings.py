"""Answer plain bodies of embeddings without vLLM's server, as it has answered others like them.

vLLM's server validates each body, and hands its inputs to a thread. It builds its answer in another
turn of that thread, validates it too, and writes each number with Python's encoder. What is the
same for all bodies that differ in their inputs only is learnt from its answers. Two must agree
before a third is written here. A body with what is not listed, and each error, is the server's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai.paths import EMBEDDINGS
from lmi_backend.engines.bodies import check_body
from lmi_backend.engines.vllm.inside import fast_paths, names, server_compat
from lmi_backend.engines.vllm.inside.embedding_bodies import EmbeddingBodies
from lmi_backend.engines.vllm.inside.embedding_kind import EXPECTED, NAME
from lmi_backend.engines.vllm.inside.embedding_lessons import (
    LENGTH,
    PROMPTS,
    EmbeddingLesson,
    copies,
    lessons,
    num_ids,
    prompt_of,
    rendered_of,
)
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpChunk, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmi_backend.engines.bodies import BodyBounds
    from lmi_backend.engines.protocol import ChunkSink
    from lmi_backend.engines.vllm.inside.adapter_table import AdapterTable
    from lmi_backend.engines.vllm.inside.embedding_bodies import EmbeddingBody
    from lmi_backend.engines.vllm.inside.embedding_lessons import LearntEmbeddings

    Answer = Callable[[HttpRequest, ChunkSink], Awaitable[None]]

_log = logging.getLogger(__name__)

ENOUGH: Final = 3
"""Bodies of one kind with different inputs, after which the next one is answered here."""
_NO_SECRET: Final = random.Random()  # noqa: S311  ids tell answers apart, and nothing else


class _Witness:
    """Hands an answer of vLLM's server on, and notes it."""

    def __init__(self, sink: ChunkSink) -> None:
        self._sink = sink
        self.status = 0
        self.lesson: EmbeddingLesson | None = None

    def take(self, chunk: HttpChunk) -> None:
        """Take a chunk."""
        self.status = chunk.status
        if self.lesson is not None:
            self.lesson.note_answer(chunk)
        self._sink.take(chunk)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)


class KnownEmbeddings:
    """What is known of the embeddings of one engine. `attach` lets it learn.

    Args:
        engine: the AsyncLLM.
        bounds: of bodies.
        adapters: whose names are no model's.
    """

    def __init__(self, engine: Any, bounds: BodyBounds, adapters: AdapterTable) -> None:
        self._engine, self._bounds, self._adapters = engine, bounds, adapters
        self._bodies = EmbeddingBodies(bounds.max_model_len * bounds.longest)
        self._lessons: list[EmbeddingLesson] = []
        self._render: Any = None
        self._has_reported = False

    def attach(self, app: Any) -> None:
        """Look whether the path stands, and see what the server of an application renders."""
        if fast_paths.probe(NAME, "a renderer of prompts, and AsyncLLM.encode", self._look):
            config = getattr(self._engine.model_config, "pooler_config", None)
            if getattr(config, "enable_chunked_processing", False):
                fast_paths.leave_out(NAME, "pooler_config has long texts cut into pieces")
            else:
                fast_paths.probe(NAME, "a server that can be looked at", lambda: self._attach(app))

    def _look(self) -> None:
        if inspect.iscoroutinefunction(self._engine.renderer.render_cmpl):
            raise TypeError("render_cmpl is a coroutine")
        if not inspect.isasyncgenfunction(names.AsyncLLM.encode):
            raise TypeError("encode yields no outputs")

    def _attach(self, app: Any) -> None:
        server = server_compat.answering(app, EMBEDDINGS)
        if server is None:  # its model makes no vectors
            return
        if getattr(server, "request_logger", None) is not None:
            fast_paths.leave_out(NAME, "enable_log_requests has vLLM's server log each request")
            return
        renderer = server.renderer
        render = renderer.render_cmpl
        renderer.render_cmpl = self._rendering
        if renderer.render_cmpl != self._rendering:
            raise TypeError("render_cmpl cannot be replaced")
        self._render = render

    def _rendering(self, *given: Any, **named: Any) -> Any:
        """Call vLLM's renderer, perhaps in a thread of vLLM's, and note what it is told."""
        if not self._lessons:
            return self._render(*given, **named)
        prompts = copies(named[PROMPTS] if PROMPTS in named else given[0])
        further = given[1:], {name: each for name, each in named.items() if name != PROMPTS}
        rendered = self._render(*given, **named)
        for each in rendered_of(prompts, further, rendered):
            for lesson in tuple(self._lessons):
                lesson.note_rendered(each)
        return rendered

    async def respond(self, request: HttpRequest, sink: ChunkSink, answer: Answer) -> None:
        """Answer a body.

        Args:
            answer: has vLLM's server answer it.

        Raises:
            Exception: what that raises.
        """
        asked = self._bodies.read(request) if self._may_know() else None
        if asked is None or asked.kind.was_seen_now() or self._adapters.has(asked.model):
            await answer(request, sink)
        elif asked.kind.is_known and asked.kind.learnt is not None:
            await self._respond_as_known(asked, asked.kind.learnt, request, sink, answer)
        elif asked.kind.may_learn and await self._is_usual(request):
            await self._learn(asked, request, sink, answer)
        else:
            await answer(request, sink)

    def _may_know(self) -> bool:
        may_look = fast_paths.is_on(NAME) and fast_paths.is_on("direct_calls")
        return self._render is not None and may_look

    async def _is_usual(self, request: HttpRequest) -> bool:
        """Tell whether a body is served as it is."""
        try:
            body, _ = await check_body(request.body, self._bounds, request.path)
        except RequestError:
            return False
        return body is request.body

    async def _learn(
        self, asked: EmbeddingBody, request: HttpRequest, sink: ChunkSink, answer: Answer
    ) -> None:
        """Have vLLM's server answer a body, and learn from that."""
        witness = _Witness(sink)
        witness.lesson = lesson = EmbeddingLesson(asked.inputs, asked.request_id)
        token = lessons.set(lesson)
        asked.kind.num_open += 1
        self._lessons.append(lesson)
        try:
            await answer(request, witness)
        finally:
            self._lessons.remove(lesson)
            asked.kind.num_open -= 1
            lessons.reset(token)
        asked.kind.learn(lesson)
        if asked.kind.is_known and not self._has_reported:
            self._has_reported = True
            _log.info("embeddings like earlier ones are made without vLLM's server from now on")

    async def _respond_as_known(
        self,
        asked: EmbeddingBody,
        learnt: LearntEmbeddings,
        request: HttpRequest,
        sink: ChunkSink,
        answer: Answer,
    ) -> None:
        try:
            sink.take(await self._written(asked, learnt))
        except Exception as error:  # noqa: BLE001  its server will say why, in its own words
            witness, came = _Witness(sink), f"{type(error).__name__}: {error}"
            _log.debug("%s: %s", NAME, came)
            await answer(request, witness)
            if witness.status == HttpChunk().status and not self._engine.errored:
                fast_paths.turn_off(NAME, EXPECTED, came)

    async def _written(self, asked: EmbeddingBody, learnt: LearntEmbeddings) -> HttpChunk:
        """Return an answer.

        Raises:
            Exception: vLLM refuses it, or does not answer as it did.
        """
        given, named = learnt.rendering
        prompts = self._render([prompt_of(each) for each in asked.inputs], *given, **named)
        if max(map(num_ids, prompts)) > self._bounds.max_model_len:
            raise RequestError("is too long", field="input")
        made = learnt.answer_id
        answer_id = made.prefix + (asked.request_id or _digits(made.digits))
        created = int(time.time())
        ids = [answer_id + suffix for suffix in learnt.suffixes]
        outputs = await self._encoded(prompts, ids, learnt.params)
        data = learnt.body(answer_id, created, outputs)
        headers = dict(learnt.headers)
        if LENGTH in headers:
            headers[LENGTH] = str(len(data))
        return HttpChunk(data, is_last=True, headers=headers)

    async def _encoded(self, prompts: Sequence[Any], ids: Sequence[str], params: Any) -> list[Any]:
        """Return what the engine makes of prompts."""
        if len(prompts) == 1:
            return [await self._output(prompts[0], ids[0], params)]
        tasks = [
            asyncio.ensure_future(self._output(prompt, request_id, params))
            for prompt, request_id in zip(prompts, ids, strict=True)
        ]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _output(self, prompt: Any, request_id: str, params: Any) -> Any:
        found = None
        asked = {"prompt": prompt, "pooling_params": copy(params), "request_id": request_id}
        async for output in self._engine.encode(**asked):
            found = output
        if getattr(found, "error", None) is not None:
            raise LookupError(str(found))
        return found


def _digits(most: int) -> str:
    return f"{_NO_SECRET.getrandbits(4 * most):0{most}x}"
