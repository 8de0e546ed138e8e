"""The one tensor table: what a client may send and what it may get.

config.pbtxt, the codec and docs/tensors.md are made from it. Shapes are without a batch
dimension: `max_batch_size` is 0, requests are batched by the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

DataType = Literal["TYPE_STRING", "TYPE_BOOL", "TYPE_INT32", "TYPE_UINT32"]


@dataclass(frozen=True)
class Tensor:
    """One input or output. `dims` is its one dimension, -1 for any length."""

    name: str
    data_type: DataType
    dims: int
    help: str


INPUTS: Final = (
    Tensor("text_input", "TYPE_STRING", 1, "Prompt, as clients of Triton's vLLM backend send it."),
    Tensor("inputs", "TYPE_STRING", -1, "Prompt, as LMI clients send it."),
    Tensor("stream", "TYPE_BOOL", 1, "Answer in pieces as they are generated. Default false."),
    Tensor("sampling_parameters", "TYPE_STRING", 1, "Parameters as one JSON object."),
    Tensor(
        "exclude_input_in_output",
        "TYPE_BOOL",
        1,
        "Leave the prompt out of text_output. Default true when streaming, else false.",
    ),
    Tensor("return_finish_reason", "TYPE_BOOL", 1, "Ask for finish_reason."),
    Tensor("return_num_input_tokens", "TYPE_BOOL", 1, "Ask for num_input_tokens."),
    Tensor("return_num_output_tokens", "TYPE_BOOL", 1, "Ask for num_output_tokens."),
    # Triton refuses a list as a request parameter; as an input of the same name it arrives.
    Tensor("stop", "TYPE_STRING", -1, "Strings that end the answer."),
    Tensor("stop_sequences", "TYPE_STRING", -1, "LMI's name of stop."),
    Tensor("stop_token_ids", "TYPE_INT32", -1, "Tokens that end the answer."),
    Tensor("bad_words", "TYPE_STRING", -1, "Strings that are never generated."),
    Tensor("bad_sequences", "TYPE_STRING", -1, "LMI's name of bad_words."),
    Tensor("adapters", "TYPE_STRING", -1, "Name of the LoRA adapter to use."),
)

OUTPUTS: Final = (
    Tensor("text_output", "TYPE_STRING", -1, "Text of this response."),
    Tensor("generated_text", "TYPE_STRING", -1, "LMI: the whole answer, with the last response."),
    Tensor("finish_reason", "TYPE_STRING", -1, "Why the answer ended; None before the end."),
    Tensor("num_input_tokens", "TYPE_UINT32", 1, "Length of the prompt in tokens."),
    Tensor("num_output_tokens", "TYPE_UINT32", -1, "Tokens generated since the last response."),
)
