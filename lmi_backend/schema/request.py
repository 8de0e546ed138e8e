"""Read a request: what LMI's clients and those of Triton's vLLM backend send.

The field that holds the prompt tells them apart: `inputs` is LMI's, `text_input` the vLLM
backend's. Parameters may use the names of either.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.schema import values
from lmi_backend.schema.fields import CONTROLS, FIELDS, IGNORED, NEUTRAL
from lmi_backend.schema.reply import Reply

if TYPE_CHECKING:
    from lmi_backend.plan.engine_plan import Dialect

_PROMPTS = ("inputs", "text_input")
_LMI_MAX_TOKENS = 30
# What vLLM's SamplingParams says when nothing is asked; its Triton backend uses no model defaults.
_VLLM_DEFAULTS = {
    "max_tokens": 16,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_RETURNS = {
    "return_finish_reason": "finish_reason",
    "return_num_input_tokens": "num_input_tokens",
    "return_num_output_tokens": "num_output_tokens",
}
_DETAILS = frozenset(_RETURNS.values())
_OWN_INPUTS = frozenset({*_PROMPTS, *_RETURNS, "sampling_parameters", "exclude_input_in_output"})


def read_request(
    inputs: Mapping[str, list[Any]], parameters: Mapping[str, Any], *, dialect: Dialect
) -> tuple[GenerateRequest, Reply]:
    """Return what to generate and how to answer.

    Args:
        inputs: values of the input tensors that were sent, by name.
        parameters: Triton's request parameters.
        dialect: whose defaults an LMI body gets.

    Raises:
        RequestError: naming the field that is wrong.
    """
    inputs = {name: value for name, value in inputs.items() if value}
    field, prompt = _prompt(inputs)
    lists = {name: value for name, value in inputs.items() if name not in _OWN_INPUTS}
    asked = _read_all(_scalars(lists) | _plain(parameters))
    if "sampling_parameters" in inputs:
        asked |= _read_all(_json_object(inputs["sampling_parameters"]), is_text=True)
    stream = bool(asked.get("stream", False))
    is_lmi = field == "inputs"
    sampling = _lmi_sampling(asked, dialect) if is_lmi else _vllm_sampling(asked)
    request = GenerateRequest(
        prompt=prompt,
        sampling=sampling,
        stream=stream,
        adapter=_adapter(asked.get("adapter", ())),
        priority=asked.get("priority", 0),
    )
    reply = Reply(
        "lmi" if is_lmi else "vllm",
        prompt_field=field,
        prefix=prompt if _wants_prompt(inputs, asked, is_lmi=is_lmi, stream=stream) else "",
        outputs=_DETAILS if asked.get("details") else _asked_outputs(inputs),
        stream=stream,
    )
    return request, reply


def _prompt(inputs: Mapping[str, list[Any]]) -> tuple[str, str]:
    given = [name for name in _PROMPTS if name in inputs]
    if len(given) != 1:
        problem = "are both given" if given else "are both missing"
        raise RequestError(problem, field="inputs and text_input", accepted="one of them")
    field = given[0]
    texts = inputs[field]
    if len(texts) != 1:
        raise RequestError(f"has {len(texts)} prompts", field=field, accepted="one prompt")
    if not texts[0]:
        raise RequestError("is empty", field=field, accepted="a prompt")
    return field, texts[0]


def _scalars(inputs: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Read inputs that stand for parameters: `stream` is one value, the others are lists."""
    return {name: value[0] if name == "stream" else value for name, value in inputs.items()}


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in parameters.items()
        if name not in IGNORED and not name.startswith("triton_")
    }


def _read_all(parameters: Mapping[str, Any], *, is_text: bool = False) -> dict[str, Any]:
    """Return target to value; two names of one target are refused if they differ."""
    targets: dict[str, Any] = {}
    for name, value in parameters.items():
        if name in NEUTRAL:
            _refuse_unless_neutral(name, value)
            continue
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise RequestError(f"is not a parameter of this server{hint}", field=name)
        field = FIELDS[name]
        read = values.read_value(field.kind, name, value, is_text=is_text)
        if targets.setdefault(field.target, read) != read:
            raise RequestError("contradicts another name of the same parameter", field=name)
    return targets


def _refuse_unless_neutral(name: str, value: Any) -> None:
    if str(value) not in map(str, NEUTRAL[name]):
        accepted = " or ".join(dict.fromkeys(json.dumps(item) for item in NEUTRAL[name]))
        raise RequestError("is not served yet", field=name, value=value, accepted=accepted)


def _json_object(texts: list[Any]) -> dict[str, Any]:
    field = "sampling_parameters"
    try:
        value = json.loads(texts[0]) if texts else {}
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON ({error})"
        raise RequestError(problem, field=field, value=texts[0]) from error
    if not isinstance(value, dict):
        raise RequestError("is not a JSON object", field=field, value=texts[0])
    return value


def _lmi_sampling(asked: dict[str, Any], dialect: Dialect) -> Sampling:
    """Apply LMI's defaults and its `do_sample`.

    The legacy handlers answer greedily unless asked to sample; the async ones leave it to the
    engine unless `do_sample` is false (shared facts: djl-serving's handlers at d21927c).
    """
    do_sample = asked.get("do_sample")
    is_greedy = do_sample is False or (
        do_sample is None and dialect == "legacy" and "temperature" not in asked
    )
    greedy = {"temperature": 0.0} if is_greedy else {}
    return _sampling({"max_tokens": _LMI_MAX_TOKENS} | asked | greedy)


def _vllm_sampling(asked: dict[str, Any]) -> Sampling:
    """Apply vLLM's defaults; LMI's `do_sample` keeps its meaning beside them."""
    greedy = {"temperature": 0.0} if asked.get("do_sample") is False else {}
    return _sampling(_VLLM_DEFAULTS | asked | greedy)


def _sampling(asked: Mapping[str, Any]) -> Sampling:
    fields = {name: value for name, value in asked.items() if name not in CONTROLS}
    extra = {
        name.removeprefix("extra."): fields.pop(name)
        for name in list(fields)
        if name.startswith("extra.")
    }
    if fields["max_tokens"] < fields.get("min_tokens", 0):
        accepted = f"at most max_new_tokens, {fields['max_tokens']}"
        value = fields["min_tokens"]
        raise RequestError("is too large", field="min_tokens", value=value, accepted=accepted)
    return Sampling(**fields, extra=extra)


def _adapter(names: tuple[str, ...]) -> str:
    if len(names) > 1:
        raise RequestError(f"has {len(names)} names", field="adapters", accepted="one name")
    return names[0] if names else ""


def _wants_prompt(
    inputs: Mapping[str, list[Any]], asked: Mapping[str, Any], *, is_lmi: bool, stream: bool
) -> bool:
    if is_lmi:
        return bool(asked.get("return_full_text", False))
    excluded = bool(inputs.get("exclude_input_in_output", [stream])[0])
    if stream and not excluded:
        problem = "cannot be put before an answer that is streamed"
        raise RequestError(problem, field="exclude_input_in_output", value=False, accepted="true")
    return not excluded


def _asked_outputs(inputs: Mapping[str, list[Any]]) -> frozenset[str]:
    return frozenset(output for name, output in _RETURNS.items() if inputs.get(name, [False])[0])
