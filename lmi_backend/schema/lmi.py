"""LMI's bodies, whole or as tensors, in both of its dialects."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import RequestError
from lmi_backend.generation import Delta, GenerateRequest
from lmi_backend.schema.formats import Asked as FormatAsked
from lmi_backend.schema.formats import Format, make_format
from lmi_backend.schema.parameters import Asked, answers_wanted, make_sampling, read_parameters
from lmi_backend.schema.prompts import Prompt, read_prompts
from lmi_backend.schema.reply import Output, ParsedRequest, Response, rename_prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk
    from lmi_backend.schema.context import Context

_MAX_TOKENS: Final = 30
# Each is held until all are there.
_MOST_ANSWERS: Final = 16_384
_FINISH = {"stop": "eos_token", "length": "length", "abort": "abort", "error": "error"}


def read_lmi(
    inputs: Any, named: dict[str, Any], context: Context, *, is_body: bool
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
    asked = read_parameters(named, dropped=dropped)
    wanted = _wanted(asked, prompts, context, is_list=is_list)
    if wanted.answers > _MOST_ANSWERS:
        problem = f"ask for {wanted.answers} answers"
        raise RequestError(problem, field="inputs and n", accepted=f"at most {_MOST_ANSWERS}")
    name = asked.get("output_formatter", context.clients.output_formatter)
    is_body = is_body or bool(name)
    body = make_format(name, wanted) if is_body else None
    logprobs = _logprobs(asked, wanted, is_body=is_body)
    sampling = make_sampling(_defaults(asked, context))
    adapters = _adapters(asked, len(prompts), context)
    requests = tuple(
        GenerateRequest(
            prompt=prompt,
            sampling=sampling,
            stream=wanted.stream,
            adapter=adapter,
            priority=asked.get("priority", 0),
            n=wanted.n,
            logprobs=logprobs,
            prompt_logprobs=asked.get(
                "prompt_logprobs", 0 if wanted.decoder_input_details else None
            ),
        )
        for prompt, adapter in zip(prompts, adapters, strict=True)
    )
    return ParsedRequest(requests, LmiReply(wanted, body), tuple(dropped), asked.get("tenant", ""))


def _wanted(asked: Asked, prompts: list[Prompt], context: Context, *, is_list: bool) -> FormatAsked:
    return FormatAsked(
        prompts=tuple(prompt if isinstance(prompt, str) else "" for prompt in prompts),
        is_list=is_list,
        n=answers_wanted(asked),
        stream=asked.get("stream", False),
        details=asked.get("details", context.clients.tgi_compat),
        return_full_text=asked.get("return_full_text", False),
        decoder_input_details=asked.get("decoder_input_details", False),
        top_n_tokens=asked.get("top_n_tokens", 0),
        seed=asked.get("seed"),
        tgi_compat=context.clients.tgi_compat,
        dialect=context.clients.dialect,
    )


def _defaults(asked: Asked, context: Context) -> Asked:
    """Apply LMI's defaults and its `do_sample`.

    The legacy handlers answer greedily unless asked to sample; the async ones leave it to the
    engine unless `do_sample` is false (djl-serving's handlers at d21927c). Several answers to a
    prompt are wanted to differ, so they are sampled unless the request says otherwise.
    """
    do_sample = asked.get("do_sample")
    is_greedy = do_sample is False or (
        do_sample is None
        and context.clients.dialect == "legacy"
        and "temperature" not in asked
        and answers_wanted(asked) == 1
    )
    greedy = {"temperature": 0.0} if is_greedy else {}
    return {"max_tokens": _MAX_TOKENS} | asked | greedy


def _logprobs(asked: Asked, wanted: FormatAsked, *, is_body: bool) -> int | None:
    """Tokens are asked of the engine only where the answer shows them: they cost time."""
    shown = wanted.details or wanted.n > 1 or (is_body and wanted.stream)
    count = max(asked.get("logprobs") or 0, wanted.top_n_tokens)
    return count if shown or count else None


def _adapters(asked: Asked, prompts: int, context: Context) -> tuple[str, ...]:
    """Return an adapter for each prompt; empty is the base model."""
    names: tuple[str, ...] = asked.get("adapter", ())
    if not names and asked.get("model") in context.adapters:
        names = (asked["model"],)
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

    asked: FormatAsked
    body: Format | None = None
    outputs: frozenset[str] = frozenset()
    _texts: dict[int, list[str]] = field(default_factory=dict)
    _done: list[Delta] = field(default_factory=list)
    _whole: Format | None = None

    def __post_init__(self) -> None:
        """Collect what details need, if they are wanted."""
        if self.body is None and (self.asked.details or self.asked.n > 1):
            self._whole = make_format("json", self.asked)

    @property
    def content_type(self) -> str:
        """Type of the body."""
        return self.body.content_type if self.body is not None else ""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        """See `Reply`."""
        deltas = [chunk for chunk in chunks if isinstance(chunk, Delta)]
        if self.body is None and "response" in self.outputs:
            self.body = make_format("", self.asked)
        if self.body is not None:
            text = self.body.write(deltas)
            return [{"response": text}] if text or is_last else []
        if self.asked.stream:
            return [self._chunk(delta) for delta in deltas]
        return self._at_once(deltas, is_last=is_last)

    def failure(self, error: LmiError) -> LmiError:
        """See `Reply`."""
        return rename_prompt(error, "inputs")

    def _chunk(self, delta: Delta) -> Response:
        """One answer's next text; with its end the whole."""
        texts = self._texts.setdefault(delta.index, [])
        texts.append(delta.text)
        response: Response = {"text_output": delta.text}
        if len(self.asked.prompts) * self.asked.n > 1:
            response["index"] = delta.index
        details = self._whole.write([delta]) if self._whole is not None else ""
        if delta.is_last:
            response["generated_text"] = self._prefix(delta.index) + "".join(texts)
        return response | self._optional([delta], details if delta.is_last else "")

    def _at_once(self, deltas: list[Delta], *, is_last: bool) -> list[Response]:
        """All answers in one response: the first to each prompt, the others in its details."""
        details = self._whole.write(deltas) if self._whole is not None else ""
        self._done += deltas
        if not is_last:
            return []
        first = sorted(
            (d for d in self._done if d.index % self.asked.n == 0), key=lambda d: d.index
        )
        texts = [self._prefix(delta.index) + delta.text for delta in first]
        response: Response = {"generated_text": texts}
        if "text_output" in self.outputs:
            response["text_output"] = texts
        return [response | self._optional(first, details)]

    def _prefix(self, index: int) -> str:
        return self.asked.prompts[index // self.asked.n] if self.asked.return_full_text else ""

    def _optional(self, deltas: list[Delta], whole: str) -> Response:
        """Return the outputs a client asks for by name, or all of them with `details`."""
        optional: dict[str, Output] = {
            "finish_reason": [_finish_word(delta) for delta in deltas],
            "num_input_tokens": [delta.num_prompt_tokens for delta in deltas],
            "num_output_tokens": [delta.num_tokens for delta in deltas],
        }
        wanted = optional if self.asked.details else {}
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
