"""The one table of request parameters, under every name a client may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

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
    integer,
    number,
)

Client = Literal["", "trtllm", "llmapi"]


@dataclass(frozen=True)
class Field:
    """A parameter: the attribute it sets, and how its value is read.

    `target` is an attribute of `Sampling`, unless it is one of `CONTROLS`. `extra.x` is the
    engine's own parameter x, `structure.x` a way to constrain the answer. `client` names the client
    whose parameter it is, where no other client uses it.
    """

    target: str
    kind: Value
    client: Client = ""
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

_TRT: Final = "trtllm"
_LLMAPI: Final = "llmapi"

FIELDS: Final[dict[str, Field]] = {
    "max_new_tokens": Field("max_tokens", integer(1)),
    "max_tokens": Field("max_tokens", integer(1)),
    # OpenAI's. LiteLLM sends it to Triton beside a max_tokens of its own.
    "max_completion_tokens": Field("max_tokens", integer(1), wins=True),
    # Other servers' names of what constrains, selects or limits an answer.
    "max_output_tokens": Field("max_tokens", integer(1)),
    "n_predict": Field("max_tokens", integer(1)),
    "num_predict": Field("max_tokens", integer(1)),
    "sampling_seed": Field("seed", SEED),
    "regex": Field("structure.regex", STRING),
    "ebnf": Field("structure.grammar", STRING),
    "json_schema": Field("structure.json", OBJECT_OR_TEXT),
    "adapter": Field("adapter", NAMES),
    "lora_adapter": Field("adapter", NAMES),
    "do_sample": Field("do_sample", BOOLEAN),
    "temperature": Field("temperature", number(0)),
    "top_p": Field("top_p", number(0, 1)),
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
    "min_new_tokens": Field("min_tokens", integer(0)),
    "min_length": Field("min_tokens", integer(0)),
    "skip_special_tokens": Field("skip_special_tokens", BOOLEAN),
    "spaces_between_special_tokens": Field("spaces_between_special_tokens", BOOLEAN),
    "bad_words": Field("bad_words", STRINGS),
    "bad_sequences": Field("bad_words", STRINGS),
    "truncate": Field("truncate_prompt_tokens", integer(1)),
    "truncate_prompt_tokens": Field("truncate_prompt_tokens", integer(1)),
    "logit_bias": Field("extra.logit_bias", TOKEN_WEIGHTS),
    "allowed_token_ids": Field("extra.allowed_token_ids", INTEGERS),
    "structured_outputs": Field("extra.structured_outputs", OBJECT),
    "guided_json": Field("structure.json", OBJECT_OR_TEXT),
    "guided_regex": Field("structure.regex", STRING),
    "guided_choice": Field("structure.choice", STRINGS),
    "guided_grammar": Field("structure.grammar", STRING),
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
    "lora_name": Field("adapter", NAMES),
    "adapters": Field("adapter", NAMES),
    "adapter_id": Field("adapter", NAMES),
    "model": Field("model", STRING),
    "priority": Field("priority", integer()),
    "stream": Field("stream", BOOLEAN),
    "tenant": Field("tenant", STRING),
    # Triton's TensorRT-LLM backend: the ensemble's names, then those of its core model.
    "stop_words": Field("stop", STRINGS, _TRT),
    "random_seed": Field("seed", SEED, _TRT),
    "end_id": Field("end_id", integer(), _TRT),
    "num_return_sequences": Field("n", ANSWERS, _TRT),
    "return_log_probs": Field("return_log_probs", BOOLEAN, _TRT),
    "guided_decoding_guide_type": Field("guide_type", STRING, _TRT),
    "guided_decoding_guide": Field("guide", STRING, _TRT),
    "lora_task_id": Field("lora_number", integer(0), _TRT),
    "request_output_len": Field("max_tokens", integer(1), _TRT),
    "runtime_top_k": Field("top_k", integer(-1), _TRT),
    "runtime_top_p": Field("top_p", number(0, 1), _TRT),
    "streaming": Field("stream", BOOLEAN, _TRT),
    # Its model on the LLM API.
    "sampling_param_max_tokens": Field("max_tokens", integer(1), _LLMAPI),
    "sampling_param_temperature": Field("temperature", number(0), _LLMAPI),
    "sampling_param_top_k": Field("top_k", integer(-1), _LLMAPI),
    "sampling_param_top_p": Field("top_p", number(0, 1), _LLMAPI),
    "sampling_param_frequency_penalty": Field("frequency_penalty", number(-2, 2), _LLMAPI),
    "sampling_param_presence_penalty": Field("presence_penalty", number(-2, 2), _LLMAPI),
    "sampling_param_stop": Field("stop", STRINGS, _LLMAPI),
    "sampling_param_seed": Field("seed", SEED, _LLMAPI),
    "sampling_param_best_of": Field("best_of", ANSWERS, _LLMAPI),
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
    {"pad_id", "beam_width", "len_penalty", "return_context_logits", "return_generation_logits"}
    | {name for name, field in FIELDS.items() if field.client == "trtllm"}
)
"""Names by which a client of the TensorRT-LLM backend is known."""

IGNORED: Final = frozenset(
    {
        "id", "user", "sequence_id", "sequence_start", "sequence_end", "timeout", "pad_id",
        "return_perf_metrics", "sampling_param_return_perf_metrics", "cached_prompt", "Streaming",
    }
)  # fmt: skip
"""Names that Triton or its clients add, and that do not change an answer."""
