"""What LMI's own handlers answered (tests/data/lmi_answers), and what our code answers to the same.

Neither needs an engine: each request has the tokens that the engine said.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest import mock

from lmi_backend.clients.lmi import INVOCATIONS, form_of, lmi_failure, streamed
from lmi_backend.clients.request import read_http_body
from lmi_backend.clients.spec import ParsedRequest
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.engines import body_members
from lmi_backend.engines.vllm import requests
from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.errors import EngineError, LmiError, RequestError
from lmi_backend.generation import Chunk, GenerateRequest, HttpChunk, HttpRequest

FOLDER: Final = Path(__file__).resolve().parents[2] / "data" / "lmi_answers"
Json = Any


class Answer(NamedTuple):
    status: int
    content_type: str
    body: str


@dataclass(frozen=True)
class Row:
    """A request, what the engine said, and what LMI answered."""

    known: dict[str, Json]
    scripts: dict[str, Json]
    special: frozenset[int]
    has_lines: bool = False
    """Whether the model here has option.openai_streams=lines."""

    @property
    def answer(self) -> Answer:
        reply = self.known["answer"]
        return Answer(reply["status"], reply["type"].split(";")[0], reply["body"])

    @property
    def group(self) -> str:
        return str(self.known["group"])

    @property
    def dialect(self) -> str:
        return str(self.known["dialect"])

    @property
    def parameters(self) -> dict[str, Json]:
        """Those of the body; empty where it has none."""
        found = self.body.get("parameters")
        return found if isinstance(found, dict) else {}

    @cached_property
    def body(self) -> dict[str, Json]:
        """Members of the request's body; none if it is no JSON object."""
        try:
            read = json.loads(self.known["body"])
        except ValueError:
            return {}
        return read if isinstance(read, dict) else {}

    @property
    def script(self) -> dict[str, Json]:
        """What the engine said: a prompt, and answers in steps."""
        found: dict[str, Json] = self.scripts[self.known.get("script", "plain")]
        return found

    @property
    def formatter(self) -> str:
        """The output formatter of the body or the model."""
        return str(self.parameters.get("output_formatter") or self.known.get("output_formatter"))

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))

    def decode(self, ids: list[int]) -> str:
        """Return the text of tokens of the prompt."""
        texts = {token[0]: token[1] for token in self.script["prompt"]}
        return "".join(texts[i] for i in ids)

    @property
    def context(self) -> Context:
        """What our code knows of the model."""
        names = ("output_formatter", "tgi_compat", "dialect")
        known = {n: self.known[n] for n in names if n in self.known}
        return Context(ClientSettings(openai_lines=self.has_lines, **known))

    def read(self) -> ParsedRequest:
        """Return what our code reads; raises LmiError."""
        headers = dict(self.known.get("headers", {}))
        return read_http_body(self.known["body"], INVOCATIONS, headers, self.context)


@cache
def head() -> dict[str, Json]:
    return dict(next(_lines()))


@cache
def rows() -> tuple[Row, ...]:
    scripts, special = head()["scripts"], frozenset(head()["special"])
    return tuple(Row(line, scripts, special) for line in _lines() if "answer" in line)


def _lines() -> Iterator[dict[str, Json]]:
    with gzip.open(FOLDER / "answers.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def our_answer(row: Row) -> Answer:
    try:
        parsed = row.read()
        our_adapter(row)
    except NoSuchModelError as error:
        return Answer(404, "application/json", json.dumps({"error": {"message": str(error)}}))
    except LmiError as error:
        return _failed(error)
    assert isinstance(parsed.work, tuple | HttpRequest)
    form, written = form_of(parsed.work, parsed.reply), bytearray()
    try:
        for chunks in _engine(row, parsed):
            written += form.write(chunks)
    except LmiError as error:
        if not written:
            return _failed(error)
        written += form.failure(error).data
    content_type = form.headers.get("content-type", "").split(";")[0]
    return Answer(form.status, content_type, written.decode())


def _failed(error: LmiError) -> Answer:
    failure = lmi_failure(error)
    return Answer(failure.status, failure.headers["content-type"], failure.data.decode())


class NoSuchModelError(Exception):
    """What vLLM's own server says of a name that it does not know."""


def our_adapter(row: Row) -> str:
    """Return the adapter that the engine gets of us; empty for the model itself.

    Raises:
        LmiError: the engine knows no such adapter, as a worker's vLLM says it.
        NoSuchModelError: vLLM's own server does not know it.
    """
    work, known = row.read().work, row.known.get("adapters", ())
    if isinstance(work, HttpRequest):
        body = json.loads(work.body)
        given = {name: body[name] for name in body_members.NAMES if name in body}
        name = {**body, **body_members.changes(given, work.path)}.get("model") or ""
        if known and name not in (*known, "", "lmi"):
            raise NoSuchModelError(name)
        return str(name) if name in known else ""
    assert isinstance(work, tuple)
    (name,) = {request.adapter for request in work}
    if name not in ("", *known):
        raise RequestError("is unknown", field="adapter", value=name)
    return str(name)


def our_sampling(row: Row) -> dict[str, Json] | None:
    """Return the parameters that vLLM gets of us where they are not its defaults."""
    try:
        work = row.read().work
    except LmiError:
        return None
    if not isinstance(work, tuple):
        return None
    # vLLM's classes say what they get; LMI's were the real ones.
    names = SimpleNamespace(
        SamplingParams=dict,
        StructuredOutputsParams=dict,
        RequestOutputKind=SimpleNamespace(DELTA=0, FINAL_ONLY=1),
        VLLMClientError=ValueError,
    )
    with mock.patch.object(requests, "names", names):
        made = requests.sampling_params(work[0], {}, 1 << 31)
    made.pop("output_kind")
    if made.get("temperature") == 0:
        # vLLM's class does the same: the best token is the best of any share.
        made = {n: value for n, value in made.items() if n not in ("top_p", "top_k", "min_p")}
    defaults = head()["defaults"]
    return {name: value for name, value in made.items() if value != defaults.get(name)}


def _engine(row: Row, parsed: ParsedRequest) -> Iterator[list[Chunk]]:
    """Yield what reaches the form: the steps of a stream, or all at once."""
    if not isinstance(parsed.work, tuple):
        yield from _server(row)
        return
    fails = row.known.get("fail")
    tokenizer = SimpleNamespace(all_special_ids=row.special, decode=row.decode)
    work = streamed(parsed.work, parsed.reply)
    made: list[list[Chunk]] = []
    for place, request in enumerate(work):
        reader = OutputReader(tokenizer, request)
        for number, output in enumerate(_outputs(row, request)):
            deltas = list(reader.deltas(output))
            for delta in deltas:
                delta.index += place * request.n
            if number == len(made):
                made.append([])
            made[number] += deltas
    steps = len(row.script["answers"][0]["steps"])
    if fails is not None and fails < steps and not work[0].stream:
        raise EngineError("the engine fails")
    for number, chunks in enumerate(made):
        if number == fails:
            raise EngineError("the engine fails")
        yield chunks


def _server(row: Row) -> Iterator[list[Chunk]]:
    """Yield what vLLM's own server answers to a body that it reads."""
    reply = row.known["engine"]
    last = len(reply["chunks"]) - 1
    for number, text in enumerate(reply["chunks"]):
        headers = {"content-type": reply["type"]}
        yield [
            HttpChunk(
                text.encode(), is_last=number == last, status=reply["status"], headers=headers
            )
        ]


def _outputs(row: Row, request: GenerateRequest) -> Iterator[Any]:
    """Yield what vLLM's engine says, in its form."""
    script = row.script
    ids = [token[0] for token in script["prompt"]]
    prompt_logprobs = None
    if request.prompt_logprobs is not None:
        found = [{i: _logprob(value, 1, text)} for i, text, value in script["prompt"][1:]]
        prompt_logprobs = [None, *found]
    answers = [script["answers"][i % len(script["answers"])] for i in range(request.n)]
    if not request.stream:
        whole = [_answer(i, a, a["steps"], request, is_last=True) for i, a in enumerate(answers)]
        yield SimpleNamespace(prompt_token_ids=ids, prompt_logprobs=prompt_logprobs, outputs=whole)
        return
    for number in range(max(len(answer["steps"]) for answer in answers)):
        parts = [
            _answer(
                place,
                answer,
                answer["steps"][number : number + 1],
                request,
                is_last=number == len(answer["steps"]) - 1,
            )
            for place, answer in enumerate(answers)
            if number < len(answer["steps"])
        ]
        first = prompt_logprobs if number == 0 else None
        yield SimpleNamespace(prompt_token_ids=ids, prompt_logprobs=first, outputs=parts)


def _answer(
    index: int, answer: Json, steps: Json, request: GenerateRequest, *, is_last: bool
) -> Any:
    tokens = [token for _, step_tokens in steps for token in step_tokens]
    return SimpleNamespace(
        index=index,
        text="".join(text for text, _ in steps),
        token_ids=[token[0] for token in tokens],
        cumulative_logprob=None,
        logprobs=[_logprobs(token, request.logprobs or 0) for token in tokens],
        finish_reason=answer["finish"] if is_last else None,
        stop_reason=answer["stop"] if is_last else None,
    )


def _logprobs(token: Json, alternatives: int) -> dict[int, Any]:
    number, text, value, rank, others = token
    found = {number: _logprob(value, rank, text)}
    for place, (other, other_text, likely) in enumerate(others[:alternatives], 1):
        found[other] = _logprob(likely, place, other_text)
    return found


def _logprob(value: float, rank: int, text: str) -> Any:
    return SimpleNamespace(logprob=value, rank=rank, decoded_token=text)
