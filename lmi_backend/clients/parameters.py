"""The one table of request parameters, and the sampling that is made of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmi_backend.clients import values
from lmi_backend.clients.values import (
    BOOLEAN,
    COUNT_OR_FLAG,
    INTEGERS,
    NAMES,
    OBJECT,
    OBJECT_OR_TEXT,
    SEED,
    STRING,
    STRINGS,
    TOKEN_WEIGHTS,
    Value,
    bare_schema,
    integer,
    number,
    read_format,
)
from lmi_backend.errors import RequestError
from lmi_backend.generation import Sampling
from lmi_backend.json_text import TooManyValuesError, read_text
from lmi_backend.printable import printable


@dataclass(frozen=True)
class Field:
    """A parameter: the attribute it sets, and how its value is read.

    `target` is an attribute of `Sampling`, unless it is one of `CONTROLS`. `extra.x` is the
    engine's own parameter x, `structure.x` a way to constrain the answer.
    """

    target: str
    kind: Value
    wins: bool = False
    """Whether it counts where another name of the same target says otherwise."""


CONTROLS: Final = frozenset(
    {
        "do_sample", "details", "return_full_text", "adapter", "priority", "stream", "n", "best_of",
        "logprobs", "prompt_logprobs", "top_n_tokens", "decoder_input_details", "output_formatter",
        "model", "exclude_prompt", "return_log_probs", "response_format", "lora_number", "end_id",
        "guide_type", "guide", "cancel", "tenant", "grammar",
    }
)  # fmt: skip
"""Targets that are about the request, not about picking tokens."""

ANSWERS: Final = integer(1, 1024)
"""How many answers to a prompt one request may have: each is kept until all are there."""


def _named(names: str, target: str, kind: Value) -> dict[str, Field]:
    return dict.fromkeys(names.split(), Field(target, kind))


_OWN: Final[dict[str, Field]] = {
    **_named("max_new_tokens max_tokens", "max_tokens", integer(1)),
    # OpenAI's. LiteLLM sends it to Triton beside a max_tokens of its own.
    "max_completion_tokens": Field("max_tokens", integer(1), wins=True),
    # Other servers' names of what constrains, selects or limits an answer.
    **_named("max_output_tokens n_predict num_predict", "max_tokens", integer(1)),
    **_named("sampling_seed seed", "seed", SEED),
    **_named("regex guided_regex", "structure.regex", STRING),
    **_named("ebnf guided_grammar", "structure.grammar", STRING),
    **_named("json_schema guided_json", "structure.json", OBJECT_OR_TEXT),
    **_named("adapter lora_adapter lora_name adapters adapter_id", "adapter", NAMES),
    **_named("stop stop_sequences", "stop", STRINGS),
    **_named("ignore_eos ignore_eos_token", "ignore_eos", BOOLEAN),
    **_named("min_tokens min_new_tokens min_length", "min_tokens", integer(0)),
    **_named("bad_words bad_sequences", "bad_words", STRINGS),
    **_named("truncate truncate_prompt_tokens", "truncate_prompt_tokens", integer(1)),
    "do_sample": Field("do_sample", BOOLEAN),
    "temperature": Field("temperature", number(0)),
    "top_p": Field("top_p", number(0, 1)),
    "top_k": Field("top_k", integer(-1)),
    "min_p": Field("min_p", number(0, 1)),
    "repetition_penalty": Field("repetition_penalty", number(0, above=True)),
    "presence_penalty": Field("presence_penalty", number(-2, 2)),
    "frequency_penalty": Field("frequency_penalty", number(-2, 2)),
    "stop_token_ids": Field("stop_token_ids", INTEGERS),
    "include_stop_str_in_output": Field("include_stop", BOOLEAN),
    "skip_special_tokens": Field("skip_special_tokens", BOOLEAN),
    "spaces_between_special_tokens": Field("spaces_between_special_tokens", BOOLEAN),
    "logit_bias": Field("extra.logit_bias", TOKEN_WEIGHTS),
    "allowed_token_ids": Field("extra.allowed_token_ids", INTEGERS),
    "structured_outputs": Field("extra.structured_outputs", OBJECT),
    "guided_choice": Field("structure.choice", STRINGS),
    "response_format": Field("response_format", OBJECT),
    # Text Generation Inference's: an object of a type and a value.
    "grammar": Field("grammar", OBJECT),
    "n": Field("n", ANSWERS),
    "best_of": Field("best_of", ANSWERS),
    "logprobs": Field("logprobs", COUNT_OR_FLAG),
    "prompt_logprobs": Field("prompt_logprobs", integer(0)),
    "top_n_tokens": Field("top_n_tokens", integer(0)),
    "decoder_input_details": Field("decoder_input_details", BOOLEAN),
    "details": Field("details", BOOLEAN),
    "return_full_text": Field("return_full_text", BOOLEAN),
    "output_formatter": Field("output_formatter", STRING),
    "model": Field("model", STRING),
    "priority": Field("priority", integer()),
    "stream": Field("stream", BOOLEAN),
    "tenant": Field("tenant", STRING),
}
_TRTLLM: Final[dict[str, Field]] = {
    "stop_words": Field("stop", STRINGS),
    "random_seed": Field("seed", SEED),
    "end_id": Field("end_id", integer()),
    "num_return_sequences": Field("n", ANSWERS),
    "return_log_probs": Field("return_log_probs", BOOLEAN),
    "guided_decoding_guide_type": Field("guide_type", STRING),
    "guided_decoding_guide": Field("guide", STRING),
    "lora_task_id": Field("lora_number", integer(0)),
    "request_output_len": Field("max_tokens", integer(1)),
    "runtime_top_k": Field("top_k", integer(-1)),
    "runtime_top_p": Field("top_p", number(0, 1)),
    "streaming": Field("stream", BOOLEAN),
}
"""Of Triton's TensorRT-LLM backend: the ensemble's names, then those of its core model."""
_LLM_API: Final = (
    "max_tokens temperature top_k top_p frequency_penalty presence_penalty stop seed best_of"
)
FIELDS: Final[dict[str, Field]] = {
    **_OWN,
    **_TRTLLM,
    # That backend's model on the LLM API.
    **{f"sampling_param_{name}": _OWN[name] for name in _LLM_API.split()},
    # Triton's OpenAI front end uses this one for models of either peer, so it names nobody.
    "sampling_param_exclude_input_from_output": Field("exclude_prompt", BOOLEAN),
    "exclude_input_in_output": Field("exclude_prompt", BOOLEAN),
}

UNLIMITED: Final = {"n_predict": -1, "num_predict": -1}
"""What llama.cpp and Ollama write for no limit. LMI's bodies have a default instead."""

NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "length_penalty": (0, 0.0, 1, 1.0),
    "len_penalty": (0, 0.0, 1, 1.0),
    "early_stopping": (False, 0),
    "beam_width": (1,),
    "num_beams": (1,),
    "typical_p": (1, 1.0),
    "watermark": (False,),
    "return_context_logits": (False,),
    "return_generation_logits": (False,),
}
"""Parameters that nothing here serves, with the values that have no effect. LMI drops them too,
with a line in its log. Clients of TensorRT-LLM's backend, which serves some, get an error for other
values."""

TRTLLM_ONLY: Final = frozenset(
    {
        "pad_id", "beam_width", "len_penalty", "return_context_logits", "return_generation_logits",
        *_TRTLLM,
    }
)  # fmt: skip
"""Names by which a client of the TensorRT-LLM backend is known."""

IGNORED: Final = frozenset(
    {
        "id", "user", "sequence_id", "sequence_start", "sequence_end", "timeout", "pad_id",
        "return_perf_metrics", "sampling_param_return_perf_metrics", "cached_prompt", "Streaming",
    }
)  # fmt: skip
"""Names that Triton or its clients add, and that do not change an answer."""


_LISTS: Final = (values.STRINGS, values.INTEGERS, values.NAMES)

Requested = dict[str, Any]
"""Target of `FIELDS` to value."""


def read_parameters(
    named: Mapping[str, object],
    *,
    dropped: list[str],
    is_text: bool = False,
    refuses_unserved: bool = False,
) -> Requested:
    """Read parameters by their names; two names of one target must agree, null is none.

    Args:
        dropped: gets the names of what is not served or not known.
        is_text: numbers and truth values may also come as strings.
        refuses_unserved: what is known and not served is an error instead.

    Raises:
        RequestError: naming the field that is wrong.
    """
    requested: Requested = {}
    winning: Requested = {}
    for name, value in named.items():
        # Clients that make their bodies from classes write null for what they do not ask.
        if value is None or name in IGNORED or name.startswith("triton_"):
            continue
        if name not in FIELDS:
            if not _asks_nothing(name, value, refuses_unserved=refuses_unserved):
                dropped.append(name)
            continue
        field = FIELDS[name]
        read = values.read_value(field.kind, name, value, is_text=is_text)
        if field.wins:
            winning[field.target] = read
        elif requested.setdefault(field.target, read) != read:
            raise RequestError("contradicts another name of the same parameter", field=name)
    return requested | winning


def _asks_nothing(name: str, value: object, *, refuses_unserved: bool) -> bool:
    accepted = NEUTRAL.get(name, ())
    if str(value) in map(str, accepted):
        return True
    if accepted and refuses_unserved:
        listed = " or ".join(dict.fromkeys(json.dumps(item) for item in accepted))
        raise RequestError("is not served", field=name, value=value, accepted=listed)
    return False


def scalars(inputs: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return inputs that stand for parameters as values: a list only where one is wanted."""
    return {
        name: value[0] if len(value) == 1 and not _is_list(name) else value
        for name, value in inputs.items()
    }


def _is_list(name: str) -> bool:
    return name in FIELDS and FIELDS[name].kind in _LISTS


def read_json(field: str, text: str) -> dict[str, Any]:
    """Read a JSON object from a tensor. Raises RequestError: it is none, or has too much in it."""
    try:
        value = read_text(text)
    except TooManyValuesError as error:
        raise RequestError(str(error), field=field) from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"is not JSON ({error})", field=field, value=text) from error
    if not isinstance(value, dict):
        raise RequestError("is not a JSON object", field=field, value=text)
    return value


def answers_wanted(requested: Mapping[str, Any]) -> int:
    wanted: int = requested.get("n") or requested.get("best_of") or 1
    return wanted


def make_sampling(requested: Mapping[str, Any]) -> Sampling:
    """Return the Sampling of what was requested. Raises RequestError: two contradict each other."""
    fields = {name: value for name, value in requested.items() if name not in CONTROLS}
    if "top_p" in fields and not fields["top_p"]:
        # Several clients write 0 for "not used"; as a share of probability it is the best token.
        fields |= {"top_p": 1.0, "top_k": 1}
    extra = _without_prefix(fields, "extra.")
    structure, form = _without_prefix(fields, "structure."), _formats(requested)
    if structure or form:
        if "structured_outputs" in extra or len(structure) + len(form) > 1:
            raise _twice()
        named = {"json": bare_schema(structure["json"])} if "json" in structure else {}
        extra["structured_outputs"] = structure | named | form
    if fields["max_tokens"] < fields.get("min_tokens", 0):
        accepted = f"at most max_new_tokens, {fields['max_tokens']}"
        value = fields["min_tokens"]
        raise RequestError("is too large", field="min_tokens", value=value, accepted=accepted)
    return Sampling(**fields, extra=extra)


def _without_prefix(fields: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): fields.pop(name)
        for name in list(fields)
        if name.startswith(prefix)
    }


def _formats(requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's `response_format` and Text Generation Inference's `grammar`, read.

    Raises:
        RequestError: both are there, and differ.
    """
    constraint: dict[str, Any] = {}
    for name in ("response_format", "grammar"):
        if (form := requested.get(name)) is not None:
            if constraint:
                raise _twice()
            constraint = read_format(name, form)
    return constraint


def _twice() -> RequestError:
    return RequestError("are requested in two ways", field="structured outputs", accepted="one way")


_log = logging.getLogger(__name__)

_NAMED: Final = 8
"""Unknown names that are reported; the others are the client's, and may be any number."""
_LONGEST_NAME: Final = 40
"""Characters of an unknown name that are kept and logged."""


class DroppedParameters:
    """Reports dropped parameters once: those of LMI, and the first few unknown names."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._num_unknown = 0

    def note(self, names: Sequence[str]) -> None:
        for name in (printable(each, _LONGEST_NAME) for each in names):
            is_unknown = name not in NEUTRAL
            if name in self._logged or (is_unknown and self._num_unknown > _NAMED):
                continue
            self._logged.add(name)
            self._num_unknown += is_unknown
            if is_unknown and self._num_unknown > _NAMED:
                _log.warning("more unknown parameters of bodies change nothing; none is named")
                continue
            what = "is unknown and changes nothing" if is_unknown else "changes nothing here"
            _log.warning("parameter '%s' of a body %s (logged once)", name, what)
