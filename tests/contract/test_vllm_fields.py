"""Each field of vLLM's bodies that can be large is bounded, or known to cost little."""

import json
from typing import Any

from lmi_backend.engines.bodies import CHAT, LISTS, NAMES, STRUCTURES, TEXTS
from tests.support.places import TESTS

OTHERS = {
    # Choices among few words, looked up by vLLM.
    "embedding_types", "guided_decoding_backend", "include", "input_type", "language",
    "timestamp_granularities", "to_language",
    # Passed on as they are: the bound of all values in a body counts for them.
    "ec_transfer_params", "kv_transfer_params", "media_io_kwargs", "metadata",
    "mm_processor_kwargs", "vllm_xargs",
    # Text that vLLM does nothing with.
    "user",
    # Media, and what vLLM reads as a file.
    "audio", "file", "hotwords", "images", "prompt_embeds", "videos",
    # Tokens, which count as values.
    "content_parts", "generate_responses", "prompt_token_ids", "prompt_tokens", "token_ids",
    "token_offsets", "tokens",
    # Of the server's operator, whose paths no client has.
    "lora_name", "lora_path",
}  # fmt: skip


def test_each_field_that_can_be_large_is_known(vllm_interpreter: Any) -> None:
    fields = json.loads(vllm_interpreter.run(str(TESTS / "support" / "vllm_fields.py")))
    assert len(fields) > 40
    assert {*fields} - OTHERS <= {*NAMES, *STRUCTURES, *LISTS, *CHAT, *TEXTS}
