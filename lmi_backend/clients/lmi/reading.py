"""LMI's bodies, whole or as tensors, in both of its dialects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lmi_backend.clients.lmi.body_reply import LmiBodyReply
from lmi_backend.clients.lmi.formats.forms import make_format
from lmi_backend.clients.lmi.formats.requested import Format, RequestedAnswer
from lmi_backend.clients.parameters import Requested, answers_wanted, make_sampling, read_parameters
from lmi_backend.clients.reply import Output, ParsedRequest, Response, rename_prompt
from lmi_backend.clients.values import Prompt, prompt_text, read_prompts
from lmi_backend.engine_config import Context
from lmi_backend.errors import LmiError, RequestError
from lmi_backend.generation import Chunk, Delta, GenerateRequest

MAX_TOKENS: Final = 30
"""Default of LMI's `max_new_tokens`."""
# Each is held until all are there.
_MOST_ANSWERS: Final = 16_384
_FINISH = {"stop": "eos_token", "length": "length", "abort": "abort", "error": "error"}


def read_lmi(
    inputs: object, named: Mapping[str, object], context: Context, *, is_body: bool
) -> ParsedRequest:
    """Read an LMI request.

    Args:
        inputs: a string, a list of strings, token ids, or a list of lists of them.
        named: all other fields, those inside and outside of `parameters`.
        is_body: the answer is wanted as LMI's own body.

    Raises:
        RequestError: naming the field that is wrong.
    """
    prompts, is_list = read_prompts("inputs", inputs)
    dropped: list[str] = []
    requested = read_parameters(named, dropped=dropped)
    wanted = _wanted(requested, prompts, context, is_list=is_list)
    if wanted.answers > _MOST_ANSWERS:
        problem = f"request {wanted.answers} answers"
        raise RequestError(problem, field="inputs and n", accepted=f"at most {_MOST_ANSWERS}")
    name = requested.get("output_formatter", context.clients.output_formatter)
    body = make_format(name, wanted) if is_body or name else None
    logprobs = _logprobs(requested, wanted, body)
    sampling = make_sampling(_defaults(requested, context))
    adapters = _adapters(requested, len(prompts), context)
    requests = tuple(
        GenerateRequest(
            prompt=prompt,
            sampling=sampling,
            stream=wanted.stream,
            adapter=adapter,
            priority=requested.get("priority", 0),
            n=wanted.n,
            logprobs=logprobs,
            prompt_logprobs=requested.get(
                "prompt_logprobs", 0 if wanted.decoder_input_details else None
            ),
        )
        for prompt, adapter in zip(prompts, adapters, strict=True)
    )
    reply = LmiReply(wanted, body)
    return ParsedRequest(
        requests,
        LmiBodyReply(reply) if is_body else reply,
        tuple(dropped),
        requested.get("tenant", ""),
    )


def _wanted(
    requested: Requested, prompts: list[Prompt], context: Context, *, is_list: bool
) -> RequestedAnswer:
    return RequestedAnswer(
        prompts=tuple(map(prompt_text, prompts)),
        is_list=is_list,
        n=answers_wanted(requested),
        stream=requested.get("stream", False),
        details=requested.get("details", context.clients.tgi_compat),
        return_full_text=requested.get("return_full_text", False),
        decoder_input_details=requested.get("decoder_input_details", False),
        top_n_tokens=requested.get("top_n_tokens", 0),
        seed=requested.get("seed"),
        tgi_compat=context.clients.tgi_compat,
        dialect=context.clients.dialect,
    )


def _defaults(requested: Requested, context: Context) -> Requested:
    """Apply LMI's defaults and its `do_sample`.

    The legacy handlers answer greedily unless told to sample; the async ones leave it to the
    engine unless `do_sample` is false (djl-serving's handlers at d21927c). Several answers to a
    prompt are wanted to differ, so they are sampled unless the request says otherwise.
    """
    do_sample = requested.get("do_sample")
    is_greedy = do_sample is False or (
        do_sample is None
        and context.clients.dialect == "legacy"
        and "temperature" not in requested
        and answers_wanted(requested) == 1
    )
    greedy = {"temperature": 0.0} if is_greedy else {}
    return {"max_tokens": MAX_TOKENS} | requested | greedy


def _logprobs(requested: Requested, wanted: RequestedAnswer, body: Format | None) -> int | None:
    """Request tokens from the engine only if the answer shows them: they cost time."""
    is_by_token = body is not None and (wanted.stream or body.is_by_token)
    shown = wanted.details or wanted.n > 1 or is_by_token
    count = max(requested.get("logprobs") or 0, wanted.top_n_tokens)
    return count if shown or count else None


def _adapters(requested: Requested, prompts: int, context: Context) -> tuple[str, ...]:
    """Return an adapter for each prompt; empty is the base model."""
    names: tuple[str, ...] = requested.get("adapter", ())
    if context.adapter:
        if names and set(names) != {context.adapter}:
            problem = f"contradicts the model's name in the request, {context.adapter}"
            raise RequestError(problem, field="adapters", value=", ".join(names))
        names = (context.adapter,)
    if not names and requested.get("model") in context.adapters:
        names = (requested["model"],)
    if len(names) <= 1:
        return (names[0] if names else "",) * prompts
    if len(names) != prompts:
        problem = f"has {len(names)} names for {prompts} inputs"
        raise RequestError(problem, field="adapters", accepted="one name, or one for each input")
    return names


@dataclass
class LmiReply:
    """Answers an LMI request.

    As tensors: `text_output` is what is new, `generated_text` the whole answer with the last
    response, `details` LMI's object as JSON. As a body: `response` holds what LMI would write.
    """

    requested: RequestedAnswer
    body: Format | None = None
    outputs: frozenset[str] = frozenset()
    _texts: dict[int, list[str]] = field(default_factory=dict)
    _done: list[Delta] = field(default_factory=list)
    _whole: Format | None = None

    def __post_init__(self) -> None:
        """Collect what details need, if they are wanted."""
        if self.body is None and (self.requested.details or self.requested.n > 1):
            self._whole = make_format("json", self.requested)

    @property
    def content_type(self) -> str:
        return self.body.content_type if self.body is not None else ""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        deltas = [chunk for chunk in chunks if isinstance(chunk, Delta)]
        if self.body is None and "response" in self.outputs:
            self.body = make_format("", self.requested)
        if self.body is not None:
            text = self.body.write(deltas)
            return [{"response": text}] if text or is_last else []
        if self.requested.stream:
            return [self._chunk(delta) for delta in deltas]
        return self._at_once(deltas, is_last=is_last)

    def failure(self, error: LmiError) -> LmiError:
        return rename_prompt(error, "inputs")

    def _chunk(self, delta: Delta) -> Response:
        """One answer's next text; with its end the whole."""
        texts = self._texts.setdefault(delta.index, [])
        texts.append(delta.text)
        response: Response = {"text_output": delta.text}
        if len(self.requested.prompts) * self.requested.n > 1:
            response["index"] = delta.index
        details = self._whole.write([delta]) if self._whole is not None else ""
        if delta.is_last:
            response["generated_text"] = self.requested.prefix(delta.index) + "".join(texts)
        return response | self._optional([delta], details if delta.is_last else "")

    def _at_once(self, deltas: list[Delta], *, is_last: bool) -> list[Response]:
        """All answers in one response: the first to each prompt, the others in its details."""
        details = self._whole.write(deltas) if self._whole is not None else ""
        self._done += deltas
        if not is_last:
            return []
        first = sorted(
            (d for d in self._done if d.index % self.requested.n == 0), key=lambda d: d.index
        )
        texts = [self.requested.prefix(delta.index) + delta.text for delta in first]
        response: Response = {"generated_text": texts}
        if "text_output" in self.outputs:
            response["text_output"] = texts
        return [response | self._optional(first, details)]

    def _optional(self, deltas: list[Delta], whole: str) -> Response:
        """Return the outputs that a client names, or all of them with `details`."""
        optional: dict[str, Output] = {
            "finish_reason": [_finish_word(delta) for delta in deltas],
            "num_input_tokens": [delta.num_prompt_tokens for delta in deltas],
            "num_output_tokens": [delta.num_tokens for delta in deltas],
        }
        wanted = optional if self.requested.details else {}
        chosen = {n: v for n, v in optional.items() if n in wanted or n in self.outputs}
        if not whole:
            return chosen
        answers = json.loads(whole)
        answers = answers if isinstance(answers, list) else [answers]
        return chosen | {
            "details": [json.dumps(answer.get("details"), ensure_ascii=False) for answer in answers]
        }


def _finish_word(delta: Delta) -> str:
    if delta.finish_reason == "stop" and delta.stop_reason is not None:
        return "stop_sequence"
    return _FINISH.get(delta.finish_reason or "", "")
