"""The one table of request parameters, under every name a client may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lmi_backend.schema.values import (
    BOOLEAN,
    INTEGERS,
    SEED,
    STRINGS,
    TOKEN_WEIGHTS,
    Value,
    integer,
    number,
)


@dataclass(frozen=True)
class Field:
    """A parameter: the attribute it sets, and how its value is read.

    `target` is an attribute of `Sampling`, unless it is one of `CONTROLS`; `extra.x` is the
    engine's own parameter x.
    """

    target: str
    kind: Value


CONTROLS: Final = frozenset(
    {"do_sample", "details", "return_full_text", "adapter", "priority", "stream"}
)
"""Targets that are about the request, not about picking tokens."""

FIELDS: Final[dict[str, Field]] = {
    "max_new_tokens": Field("max_tokens", integer(1)),
    "max_tokens": Field("max_tokens", integer(1)),
    "do_sample": Field("do_sample", BOOLEAN),
    "temperature": Field("temperature", number(0)),
    "top_p": Field("top_p", number(0, 1, above=True)),
    "top_k": Field("top_k", integer(-1)),
    "min_p": Field("min_p", number(0, 1)),
    "repetition_penalty": Field("repetition_penalty", number(0, above=True)),
    "presence_penalty": Field("presence_penalty", number(-2, 2)),
    "frequency_penalty": Field("frequency_penalty", number(-2, 2)),
    "seed": Field("seed", SEED),
    "stop": Field("stop", STRINGS),
    "stop_sequences": Field("stop", STRINGS),
    "stop_token_ids": Field("stop_token_ids", INTEGERS),
    "include_stop_str_in_output": Field("include_stop", BOOLEAN),
    "ignore_eos": Field("ignore_eos", BOOLEAN),
    "ignore_eos_token": Field("ignore_eos", BOOLEAN),
    "min_tokens": Field("min_tokens", integer(0)),
    "min_length": Field("min_tokens", integer(0)),
    "skip_special_tokens": Field("skip_special_tokens", BOOLEAN),
    "spaces_between_special_tokens": Field("spaces_between_special_tokens", BOOLEAN),
    "bad_words": Field("bad_words", STRINGS),
    "bad_sequences": Field("bad_words", STRINGS),
    "truncate": Field("truncate_prompt_tokens", integer(1)),
    "logit_bias": Field("extra.logit_bias", TOKEN_WEIGHTS),
    "allowed_token_ids": Field("extra.allowed_token_ids", INTEGERS),
    "details": Field("details", BOOLEAN),
    "return_full_text": Field("return_full_text", BOOLEAN),
    "lora_name": Field("adapter", STRINGS),
    "adapters": Field("adapter", STRINGS),
    "priority": Field("priority", integer()),
    "stream": Field("stream", BOOLEAN),
}

NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "num_beams": (1,),
    "early_stopping": (False,),
    "length_penalty": (1, 1.0),
    "top_n_tokens": (0,),
    "logprobs": (0, None, False),
    "prompt_logprobs": (0, None),
    "decoder_input_details": (False,),
    "typical_p": (1, 1.0),
    "watermark": (False,),
    "output_formatter": ("json", "jsonlines"),
}
"""Parameters of LMI and vLLM that are not served yet, with the values that ask for nothing."""

IGNORED: Final = frozenset(
    {"id", "model", "user", "sequence_id", "sequence_start", "sequence_end", "timeout"}
)
"""Names that Triton or its clients add, and that do not change an answer."""
