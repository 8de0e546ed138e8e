"""Read a request of any client.

The tensor that holds the prompt tells the clients apart. `request` is a whole body, `inputs` is
LMI's. `text_input` is that of Triton's vLLM backend, or of its TensorRT-LLM backend if a name
occurs that only the latter's clients use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lmi_backend.clients.fields import TRTLLM_ONLY
from lmi_backend.clients.lmi.body import make_body, of_tenant, read_body
from lmi_backend.clients.lmi.embedding import read_lmi_embedding
from lmi_backend.clients.lmi.reading import read_lmi
from lmi_backend.clients.parameters import scalars
from lmi_backend.clients.reply import AdapterChange, Cancel, ParsedRequest
from lmi_backend.clients.trtllm.reading import TrtllmReply, read_trtllm
from lmi_backend.clients.trtllm.tokens import read_postprocessing, read_preprocessing
from lmi_backend.clients.vllm.embedding import read_embedding
from lmi_backend.clients.vllm.reading import RETURNS, read_vllm
from lmi_backend.engine_config import Context
from lmi_backend.errors import RequestError
from lmi_backend.names import NAME_BYTES, PATH_BYTES, check_name

_PROMPTS: Final = ("request", "inputs", "text_input", "input_ids", "embedding_request")
_OWN: Final = frozenset({*_PROMPTS, *RETURNS, "sampling_parameters", "image", "path", "headers"})


def read_request(
    rows: Sequence[Mapping[str, list[Any]]],
    parameters: Mapping[str, object],
    context: Context,
    *,
    is_trtllm: bool = False,
    step: str = "",
) -> ParsedRequest:
    """Return what to do and how to answer.

    Args:
        rows: values of the input tensors that were sent, by name; one row, but for a model whose
            tensors have a batch dimension.
        parameters: Triton's request parameters.
        context: what the model's options say about its clients.
        is_trtllm: the model is for TensorRT-LLM's clients only, for any names they use.
        step: of their ensemble that the model does alone; empty for all.

    Raises:
        LmiError: naming the field that is wrong.
    """
    given = [{name: value for name, value in row.items() if value} for row in rows]
    # Whoever calls Triton is nearer than who wrote the body, and may speak for many.
    if step:
        read = read_preprocessing(given) if step == "preprocessing" else read_postprocessing(given)
    elif is_trtllm:
        read = _read_trtllm(given, parameters, context)
    else:
        read = _read(given, parameters, context)
    parsed = of_tenant(read, parameters, "tenant")
    try:
        _check_names(parsed)
    except RequestError as error:
        raise parsed.reply.failure(error) from error
    return parsed


def _read(
    rows: Sequence[Mapping[str, list[Any]]], parameters: Mapping[str, object], context: Context
) -> ParsedRequest:
    inputs = rows[0]
    given = [name for name in _PROMPTS if name in inputs]
    name = _one_prompt(given, _PROMPTS)
    if name == "request":
        return read_body(inputs, context)
    if name == "inputs":
        return _read_lmi(inputs, parameters, context)
    if name == "embedding_request":
        return read_embedding(inputs)
    if name == "input_ids" or len(rows) > 1 or _is_trtllm(inputs, parameters):
        return read_trtllm(rows, parameters, context)
    return read_vllm(inputs, dict(parameters) | scalars(_others(inputs)), context)


def _read_trtllm(
    rows: Sequence[Mapping[str, list[Any]]], parameters: Mapping[str, object], context: Context
) -> ParsedRequest:
    # Beside it stand input_ids and lengths that mean nothing: the peer's model must have them.
    if rows[0].get("stop") == [True]:
        if not context.clients.stop_by_id:
            raise RequestError("is switched off (option.stop_by_id=false)", field="stop")
        return ParsedRequest(Cancel(), TrtllmReply())
    accepted = ("text_input", "input_ids")
    _one_prompt([name for name in accepted if name in rows[0]], accepted)
    return read_trtllm(rows, parameters, context)


def _one_prompt(given: Sequence[str], accepted: Sequence[str]) -> str:
    if len(given) != 1:
        problem = "are both given" if given else "is missing"
        field = " and ".join(given[:2]) or "prompt"
        raise RequestError(problem, field=field, accepted=f"one of {', '.join(accepted)}")
    return given[0]


def _check_names(parsed: ParsedRequest) -> None:
    """Refuse names that nobody could keep or log, from any tensor, field or header.

    An OpenAI body is read in the worker, and the names in it are checked there.
    """
    match parsed.work:
        case AdapterChange(body):
            bounds = {"name": NAME_BYTES, "src": PATH_BYTES, "requestType": NAME_BYTES}
            for name, most in bounds.items():
                if isinstance(text := body.get(name), str):
                    check_name(name, text, most=most)
        case tuple(requests):
            for adapter in {request.adapter for request in requests}:
                check_name("adapter", adapter)


def _read_lmi(
    inputs: Mapping[str, list[Any]], parameters: Mapping[str, object], context: Context
) -> ParsedRequest:
    named = dict(parameters) | scalars(_others(inputs))
    prompts = inputs["inputs"]
    one = prompts[0] if len(prompts) == 1 else prompts
    if context.is_custom:
        return make_body(one, named)
    if context.clients.is_embedding:
        return read_lmi_embedding(one, context, is_body=False)
    return read_lmi(one, named, context, is_body=False)


def _others(inputs: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: value for name, value in inputs.items() if name not in _OWN}


def _is_trtllm(inputs: Mapping[str, object], parameters: Mapping[str, object]) -> bool:
    names = {*inputs, *parameters}
    return (
        bool(names & TRTLLM_ONLY)
        or "bad_words" in inputs
        or any(name.startswith("sampling_param_") for name in names)
    )
