"""What clients of Triton's vLLM backend are: they send tensors, and have no paths."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lmi_backend.clients.lmi import EmbeddingReply
from lmi_backend.clients.openai import EMBEDDINGS, HttpForm
from lmi_backend.clients.parameters import (
    FIELDS,
    Requested,
    answers_wanted,
    make_sampling,
    read_json,
    read_parameters,
)
from lmi_backend.clients.spec import ClientSpec, ParsedRequest, Response, rename_prompt
from lmi_backend.clients.triton import triton_failure
from lmi_backend.clients.values import read_prompts
from lmi_backend.engine_config import Context
from lmi_backend.errors import LmiError, QuotedError, RequestError
from lmi_backend.generation import Chunk, Delta, GenerateRequest, HttpRequest, Token
from lmi_backend.names import check_name

PIECE: Final = 1 << 20
"""Characters of base64."""
# What vLLM's SamplingParams says when nothing is asked; its Triton backend uses no model defaults.
_DEFAULTS: Final = {
    "max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
    "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip
RETURNS: Final = {
    "return_finish_reason": "finish_reason",
    "return_cumulative_logprob": "cumulative_logprob",
    "return_logprobs": "logprobs",
    "return_num_input_tokens": "num_input_tokens",
    "return_num_output_tokens": "num_output_tokens",
}
"""Inputs that request an output."""


# The backend's clients compare these from the first letter to the last.
_NO_PROMPT: Final = (
    "Error generating stream: When streaming, `exclude_input_in_output` = False is not allowed."
)
_NO_LORA: Final = "LoRA feature is not enabled."


def read_vllm(
    inputs: Mapping[str, list[Any]], named: Mapping[str, object], context: Context
) -> ParsedRequest:
    """Read a request.

    Args:
        inputs: the tensors that were sent; `text_input` is one of them.
        named: all parameters that came on their own.

    Raises:
        RequestError: naming the field that is wrong.
        QuotedError: it is wrong in a way for which the backend's clients have a text.
    """
    if len(inputs["text_input"]) != 1:
        problem = f"has {len(inputs['text_input'])} prompts"
        raise RequestError(problem, field="text_input", accepted="one prompt")
    (prompt,), _ = read_prompts("text_input", inputs["text_input"][0])
    dropped: list[str] = []
    requested = _requested(inputs, named, dropped)
    stream = requested.get("stream", False)
    outputs = requested_outputs(inputs)
    n = answers_wanted(requested)
    greedy = {"temperature": 0.0} if requested.get("do_sample") is False else {}
    request = GenerateRequest(
        prompt=prompt,
        sampling=make_sampling(_DEFAULTS | requested | greedy),
        stream=stream,
        adapter=_adapter(requested, context),
        priority=requested.get("priority", 0),
        n=n,
        logprobs=_logprobs(requested, outputs),
        images=tuple(_image(text) for text in inputs.get("image", ())),
    )
    excludes = requested.get("exclude_prompt", stream)
    if stream and not excludes:
        raise QuotedError(_NO_PROMPT)
    prefix = "" if excludes or not isinstance(prompt, str) else prompt
    shows_logprobs = requested.get("logprobs") is not None
    reply = VllmReply(n, stream, prefix, outputs, shows_logprobs=shows_logprobs)
    return ParsedRequest((request,), reply, tuple(dropped), requested.get("tenant", ""))


def _requested(
    inputs: Mapping[str, list[Any]], named: Mapping[str, object], dropped: list[str]
) -> Requested:
    """Read the parameters: what the tensor says is not looked for elsewhere.

    The backend's own client sends the same ones in both places, with numbers as strings.
    """
    if "sampling_parameters" not in inputs:
        return read_parameters(named, is_text=True, dropped=dropped, refuses_unserved=True)
    body = read_json("sampling_parameters", inputs["sampling_parameters"][0])
    requested = read_parameters(body, is_text=True, dropped=dropped, refuses_unserved=True)
    others = {
        name: value
        for name, value in named.items()
        if name not in body and not (name in FIELDS and FIELDS[name].target in requested)
    }
    return read_parameters(others, is_text=True, dropped=dropped, refuses_unserved=True) | requested


def requested_outputs(inputs: Mapping[str, list[Any]]) -> frozenset[str]:
    return frozenset(output for name, output in RETURNS.items() if inputs.get(name, [False])[0])


def _adapter(requested: Requested, context: Context) -> str:
    names = requested.get("adapter", ())
    if len(names) > 1:
        raise RequestError(f"has {len(names)} names", field="adapters", accepted="one name")
    name = names[0] if names else ""
    check_name("adapter", name)
    if name and not context.has_lora:
        raise QuotedError(_NO_LORA)
    if name and name not in context.adapters:
        adapters = list(context.adapters)
        raise QuotedError(f"LoRA {name} is not supported, we currently support {adapters}")
    return name


def _logprobs(requested: Requested, outputs: frozenset[str]) -> int | None:
    count: int | None = requested.get("logprobs")
    return 0 if count is None and "cumulative_logprob" in outputs else count


def _image(text: str) -> bytes:
    # A piece would take it for its own end.
    if len(text) > PIECE and text.find("=", 0, -2) >= 0:
        raise RequestError("is not base64 (data after its padding)", field="image")
    data = io.BytesIO()
    try:
        # In pieces, between which other threads run.
        for at in range(0, len(text), PIECE):
            data.write(base64.b64decode(text[at : at + PIECE], validate=True))
        return data.getvalue()
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"is not base64 ({error})", field="image", value=text) from error


@dataclass
class VllmReply:
    """One element of each output for each of `n` choices."""

    n: int
    stream: bool
    prefix: str
    outputs: frozenset[str]
    shows_logprobs: bool = False
    _deltas: dict[int, Delta] = field(default_factory=dict)

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        if self.stream and self.n == 1 and not self.outputs:
            # Most responses of all: nothing of them is needed later.
            return [{"text_output": chunk.text} for chunk in chunks if isinstance(chunk, Delta)]
        for chunk in chunks:
            if isinstance(chunk, Delta):
                self._deltas[chunk.index] = chunk
        if not (self.stream or is_last):
            return []
        choices = [self._deltas.get(index, Delta()) for index in range(self.n)]
        response = self._response(choices)
        # Each later response repeats how a choice ended: "stop", not "None".
        self._deltas = {
            index: Delta(
                finish_reason=delta.finish_reason, num_prompt_tokens=delta.num_prompt_tokens
            )
            for index, delta in self._deltas.items()
        }
        return [response]

    def failure(self, error: LmiError) -> LmiError:
        return rename_prompt(error, "text_input")

    def _response(self, choices: list[Delta]) -> Response:
        response: Response = {"text_output": [self.prefix + choice.text for choice in choices]}
        for name in self.outputs:
            match name:
                case "finish_reason":
                    # Until the end the backend sends Python's None as text.
                    response[name] = [str(choice.finish_reason) for choice in choices]
                case "cumulative_logprob":
                    totals = (choice.cumulative_logprob for choice in choices)
                    response[name] = [math.nan if each is None else each for each in totals]
                case "logprobs":
                    response[name] = [self._logprobs(choice.tokens) for choice in choices]
                case "num_input_tokens":
                    response[name] = max(choice.num_prompt_tokens for choice in choices)
                case "num_output_tokens":
                    response[name] = [choice.num_tokens for choice in choices]
        return response

    def _logprobs(self, tokens: tuple[Token, ...]) -> str:
        if not self.shows_logprobs:
            return "null"
        return json.dumps(
            [{str(t.id): _logprob(t) for t in (token, *token.top)} for token in tokens]
        )


def _logprob(token: Token) -> dict[str, object]:
    return {"logprob": token.logprob, "rank": token.rank, "decoded_token": token.text}


def read_embedding(inputs: Mapping[str, list[Any]]) -> ParsedRequest:
    """Read an `embedding_request`: the engine's own embeddings endpoint answers it.

    Raises:
        RequestError: it is not JSON, or lacks its input.
    """
    body = read_json("embedding_request", inputs["embedding_request"][0])
    if "input" not in body:
        raise RequestError("has no input", field="embedding_request", accepted="one text or ids")
    options = body.get("pooling_params") or {}
    dimensions = options.get("dimensions") if isinstance(options, dict) else None
    # The vLLM backend's clients send the number in a list.
    if isinstance(dimensions, list) and dimensions:
        dimensions = dimensions[0]
    requested = {"input": body["input"]} | ({"dimensions": dimensions} if dimensions else {})
    call = HttpRequest(EMBEDDINGS, json.dumps(requested).encode())
    reply = EmbeddingReply(
        output="text_output", field="embedding_request", outputs=requested_outputs(inputs)
    )
    return ParsedRequest(call, reply)


SPEC: Final = ClientSpec(
    name="vllm",
    title="Triton's vLLM backend",
    failure=triton_failure,
    form=HttpForm,
    paths=(),
)
