"""The one tensor table: what a client may send and what it may get.

config.pbtxt, the codec and docs/requests.md are made from it. Shapes are without a batch dimension,
which only the variants of the TensorRT-LLM clients have (see `variants.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

DataType = Literal[
    "TYPE_STRING", "TYPE_BOOL", "TYPE_INT32", "TYPE_UINT32", "TYPE_UINT64", "TYPE_FP32"
]


@dataclass(frozen=True)
class Tensor:
    """One input or output. `dims` is its one dimension, or a pair of them; -1 is any length."""

    name: str
    data_type: DataType
    dims: int | tuple[int, int]
    help: str
    is_batched: bool = True
    """Whether it gets the batch dimension of its variant, where that has one.

    What TensorRT-LLM's post-processing writes has none: its clients read `text_output[0]`.
    """

    @property
    def shape(self) -> list[int]:
        """`dims` as Triton writes it."""
        return [self.dims] if isinstance(self.dims, int) else list(self.dims)


_S: Final = "TYPE_STRING"
_B: Final = "TYPE_BOOL"
_I: Final = "TYPE_INT32"
_U: Final = "TYPE_UINT32"
_F: Final = "TYPE_FP32"

TEXT_INPUT: Final = Tensor("text_input", _S, 1, "Prompt, as clients of Triton's backends send it.")
REQUEST: Final = Tensor(
    "request", _S, 1, "A whole HTTP body as JSON: LMI's, OpenAI's, or management."
)
RESPONSE: Final = Tensor(
    "response", _S, -1, "What an HTTP server would write: a body, or its next part."
)

# Returns that more than one peer has.
_RETURNS: Final = (
    Tensor("return_finish_reason", _B, 1, "Return finish_reason."),
    Tensor("return_cumulative_logprob", _B, 1, "Return cumulative_logprob."),
    Tensor("return_num_input_tokens", _B, 1, "Return num_input_tokens."),
    Tensor("return_num_output_tokens", _B, 1, "Return num_output_tokens."),
)
_LLMAPI: Final = (
    Tensor("streaming", _B, 1, "TensorRT-LLM's name of stream."),
    Tensor("return_stop_reason", _B, 1, "Return stop_reason."),
    Tensor("sampling_param_best_of", _I, 1, "LLM API: answers wanted."),
    Tensor("sampling_param_temperature", _F, 1, "LLM API: temperature."),
    Tensor("sampling_param_top_k", _I, 1, "LLM API: top_k."),
    Tensor("sampling_param_top_p", _F, 1, "LLM API: top_p."),
    Tensor("sampling_param_frequency_penalty", _F, 1, "LLM API: frequency_penalty."),
    Tensor("sampling_param_presence_penalty", _F, 1, "LLM API: presence_penalty."),
    Tensor("sampling_param_max_tokens", _I, 1, "LLM API: max_tokens."),
    Tensor("sampling_param_stop", _S, -1, "LLM API: strings that end the answer."),
    Tensor("sampling_param_seed", "TYPE_UINT64", 1, "LLM API: seed."),
    Tensor(
        "sampling_param_exclude_input_from_output",
        _B,
        1,
        "LLM API: leave the prompt out of text_output.",
    ),
    Tensor("sampling_param_return_perf_metrics", _B, 1, "LLM API: accepted; there are none."),
)

INPUTS: Final = (
    TEXT_INPUT,
    Tensor("inputs", _S, -1, "Prompt or prompts, as LMI clients send them."),
    REQUEST,
    Tensor(
        "path", _S, 1, "Where `request` was sent, such as /v1/completions. Default by its fields."
    ),
    Tensor("headers", _S, 1, "HTTP headers of `request`, as a JSON object."),
    Tensor("image", _S, -1, "Images in base64, for models that take them."),
    Tensor("embedding_request", _S, 1, "JSON with `input`: its embedding is wanted."),
    Tensor("stream", _B, 1, "Answer in chunks as they are generated. Default false."),
    Tensor("sampling_parameters", _S, 1, "Parameters as one JSON object."),
    Tensor(
        "exclude_input_in_output",
        _B,
        1,
        "Leave the prompt out of text_output. Default true when streaming, else false.",
    ),
    *_RETURNS,
    Tensor("return_logprobs", _B, 1, "Return logprobs."),
    # Triton refuses a list as a request parameter; as an input of the same name it arrives.
    Tensor("stop", _S, -1, "Strings that stop the answer."),
    Tensor("stop_sequences", _S, -1, "LMI's name of stop."),
    Tensor("stop_words", _S, -1, "TensorRT-LLM's name of stop."),
    Tensor("stop_token_ids", _I, -1, "Tokens that end the answer."),
    Tensor("allowed_token_ids", _I, -1, "The only tokens of the answer."),
    Tensor("bad_words", _S, -1, "Strings that are never generated."),
    Tensor("bad_sequences", _S, -1, "LMI's name of bad_words."),
    Tensor("guided_choice", _S, -1, "The answers allowed."),
    Tensor("adapters", _S, -1, "LoRA adapter, one for all inputs or one for each; empty for none."),
    *_LLMAPI,
)

INFER_INPUTS: Final = (
    *INPUTS,
    # LiteLLM sends these as tensors to `/infer`; `/generate` makes them parameters elsewhere.
    Tensor("max_tokens", _I, 1, "Longest answer in tokens."),
    Tensor("max_completion_tokens", _I, 1, "OpenAI's name of max_tokens; it counts if both are."),
    Tensor("temperature", _F, 1, "Randomness; 0 for greedy."),
    Tensor("top_k", _I, 1, "Likeliest tokens to choose from; 0 for all."),
    Tensor("top_p", _F, 1, "Share of probability to choose from."),
    Tensor("min_p", _F, 1, "Least probability to choose from, as a share of the likeliest's."),
    Tensor("min_tokens", _I, 1, "Shortest answer in tokens."),
    Tensor("repetition_penalty", _F, 1, "Above 0; 1 for none."),
    Tensor("presence_penalty", _F, 1, "-2 to 2."),
    Tensor("frequency_penalty", _F, 1, "-2 to 2."),
)
"""Inputs of the variant for `/infer`, whose clients have no other way to send a parameter."""

OUTPUTS: Final = (
    Tensor("text_output", _S, -1, "Text of this response.", is_batched=False),
    Tensor("generated_text", _S, -1, "LMI: the whole answer, with the last response."),
    RESPONSE,
    Tensor("headers", _S, 1, "HTTP status and headers of `response` as JSON, with its first part."),
    Tensor("details", _S, -1, "LMI: the details object as JSON, with the last response."),
    Tensor("index", _U, 1, "LMI: which answer a chunk belongs to, where there are several."),
    Tensor(
        "finish_reason", _S, -1, "Why the answer stopped; None while it runs.", is_batched=False
    ),
    Tensor("stop_reason", _S, -1, "What stopped it: a stop string or token id.", is_batched=False),
    Tensor(
        "cumulative_logprob",
        _F,
        -1,
        "Sum of the tokens' log probabilities so far.",
        is_batched=False,
    ),
    Tensor(
        "logprobs", _S, -1, "JSON: for each token an object of id to logprob, rank, decoded_token."
    ),
    Tensor("num_input_tokens", _U, -1, "Length of the prompt in tokens."),
    Tensor("num_output_tokens", _U, -1, "Tokens generated since the last response."),
    Tensor("batch_index", _I, 1, "TensorRT-LLM: which prompt, where there are several."),
    Tensor("sequence_index", _I, 1, "TensorRT-LLM: which answer to it."),
    Tensor("cum_log_probs", _F, -1, "TensorRT-LLM's cumulative_logprob."),
    Tensor("output_log_probs", _F, (-1, -1), "TensorRT-LLM: log probabilities of the new tokens."),
)

TRTLLM_INPUTS: Final = (
    TEXT_INPUT,
    Tensor("input_ids", _I, -1, "Prompt as token ids, for callers that tokenise themselves."),
    Tensor("input_lengths", _I, 1, "How many of input_ids count."),
    Tensor("decoder_input_ids", _I, -1, "Accepted without effect: only zeros."),
    Tensor("max_tokens", _I, 1, "Longest answer in tokens."),
    Tensor(
        "request_output_len",
        _I,
        1,
        "Core model's name of max_tokens; UINT32 in a model called ensemble.",
    ),
    Tensor("num_return_sequences", _I, 1, "Answers wanted."),
    Tensor("bad_words", _S, -1, "Strings that are never generated."),
    Tensor("stop_words", _S, -1, "Strings that stop the answer."),
    Tensor(
        "bad_words_list", _I, (2, -1), "Token ids that are never generated, and the end of each."
    ),
    Tensor("stop_words_list", _I, (2, -1), "Token ids that stop the answer, and the end of each."),
    Tensor("exclude_input_in_output", _B, 1, "Leave the prompt out of the answer. Default false."),
    Tensor("end_id", _I, 1, "Token that stops the answer."),
    Tensor("pad_id", _I, 1, "Accepted; answers are not padded."),
    Tensor("top_k", _I, 1, "Likeliest tokens to choose from; 0 for all."),
    Tensor("top_p", _F, 1, "Share of probability to choose from; 0 for all."),
    Tensor("runtime_top_k", _I, 1, "Core model's name of top_k."),
    Tensor("runtime_top_p", _F, 1, "Core model's name of top_p."),
    Tensor("temperature", _F, 1, "Randomness; greedy unless top_k or top_p leave a choice."),
    Tensor("length_penalty", _F, 1, "Accepted without effect: 0 or 1."),
    Tensor("len_penalty", _F, 1, "Core model's name of length_penalty."),
    Tensor("repetition_penalty", _F, 1, "Above 0; 1 for none."),
    Tensor("presence_penalty", _F, 1, "-2 to 2."),
    Tensor("frequency_penalty", _F, 1, "-2 to 2."),
    Tensor("min_tokens", _I, 1, "Shortest answer in tokens."),
    Tensor("min_length", _I, 1, "Its name before 25.05."),
    Tensor("seed", "TYPE_UINT64", 1, "Seed of the sampling."),
    Tensor("random_seed", "TYPE_UINT64", 1, "Its name before 25.05."),
    Tensor("return_log_probs", _B, 1, "Return cum_log_probs and output_log_probs."),
    Tensor("return_context_logits", _B, 1, "Accepted where it is false."),
    Tensor("return_generation_logits", _B, 1, "Accepted where it is false."),
    Tensor("return_perf_metrics", _B, 1, "Accepted; there are none."),
    *_RETURNS,
    Tensor("beam_width", _I, 1, "Accepted where it is 1."),
    Tensor("stream", _B, 1, "Answer in chunks as they are generated. Default false."),
    *_LLMAPI,
    Tensor("stop", _B, 1, "With the id of a running request: end it."),
    Tensor(
        "lora_task_id", "TYPE_UINT64", 1, "LoRA adapter by its number from 1, in the listed order."
    ),
    Tensor("lora_name", _S, 1, "LoRA adapter by its name."),
    Tensor("guided_decoding_guide_type", _S, 1, "json, json_schema, regex or ebnf_grammar."),
    Tensor("guided_decoding_guide", _S, 1, "The schema, expression or grammar."),
)
"""Inputs of the variants for TensorRT-LLM clients; Triton puts a batch dimension before each."""

TRTLLM_OUTPUTS: Final = (
    *(
        tensor
        for tensor in OUTPUTS
        if tensor.name
        not in ("generated_text", "response", "headers", "details", "index", "logprobs")
    ),
    Tensor("output_ids", _I, (-1, -1), "Tokens of this response, where the prompt was token ids."),
    Tensor("sequence_length", _I, -1, "How many they are."),
)

PREPROCESSING_INPUTS: Final = (
    Tensor("QUERY", _S, 1, "Prompt."),
    Tensor("DECODER_QUERY", _S, 1, "Accepted where it is empty."),
    Tensor("REQUEST_OUTPUT_LEN", _I, 1, "Comes back, for request_output_len."),
    Tensor("BAD_WORDS_DICT", _S, -1, "Strings that are never generated, with commas between them."),
    Tensor("STOP_WORDS_DICT", _S, -1, "Strings that end the answer, with commas between them."),
    Tensor("END_ID", _I, 1, "Comes back; by default the tokenizer's."),
    Tensor("PAD_ID", _I, 1, "Comes back; by default the tokenizer's."),
)
PREPROCESSING_OUTPUTS: Final = (
    Tensor("INPUT_ID", _I, -1, "Tokens of the prompt, for input_ids."),
    Tensor("REQUEST_INPUT_LEN", _I, 1, "How many they are."),
    Tensor("DECODER_INPUT_ID", _I, -1, "Has no effect."),
    Tensor("REQUEST_DECODER_INPUT_LEN", _I, 1, "Its length."),
    Tensor("BAD_WORDS_IDS", _I, (2, -1), "For bad_words_list."),
    Tensor("STOP_WORDS_IDS", _I, (2, -1), "For stop_words_list."),
    Tensor("REQUEST_OUTPUT_LEN", _I, -1, "For request_output_len."),
    Tensor("OUT_END_ID", _I, 1, "For end_id; -1 for none."),
    Tensor("OUT_PAD_ID", _I, 1, "For pad_id; -1 for none."),
)
POSTPROCESSING_INPUTS: Final = (
    Tensor("TOKENS_BATCH", _I, (-1, -1), "Tokens of one answer: output_ids."),
    Tensor("SEQUENCE_LENGTH", _I, -1, "How many of them count: sequence_length."),
)
POSTPROCESSING_OUTPUTS: Final = (
    Tensor("OUTPUT", _S, -1, "Their text, without special tokens.", is_batched=False),
)
