"""What is known of vLLM is what it says itself, asked without an engine."""

import json
from pathlib import Path
from typing import Any

from lmi_backend.engines.bodies import CHAT, LISTS, NAMES, STRUCTURES, TEXTS
from lmi_backend.options.signature import records
from lmi_backend.plan.memory_options import UNCOUNTED
from tests.support.run.places import ROOT, SCRIPTS


def test_the_record_is_what_vllm_says(vllm_interpreter: Any, tmp_path: Path) -> None:
    script, output = ROOT / "lmi_backend/engines/vllm/own_arguments.py", tmp_path / "vllm.json"
    vllm_interpreter.run(str(script), str(output))
    recorded = dict(next(iter(records("vllm").values())))
    assert json.loads(output.read_bytes()) == recorded, "tools/record_signature.py"


def test_what_no_plan_counts_is_an_argument_of_a_release() -> None:
    assert not UNCOUNTED - {name for each in records("vllm").values() for name in each["arguments"]}


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
    fields = json.loads(vllm_interpreter.run(str(SCRIPTS / "vllm_fields.py")))
    assert len(fields) > 40
    assert {*fields} - OTHERS <= {*NAMES, *STRUCTURES, *LISTS, *CHAT, *TEXTS}


def test_copies_are_added_up_and_told_apart(vllm_interpreter: Any) -> None:
    seen, copies, one, loggers = json.loads(vllm_interpreter.run(str(SCRIPTS / "vllm_copies.py")))
    assert seen == [[200, 40, 0.97, 1], [207, 40, 0.97, 2], [203, 40, 0.97, 3]]
    # Steps and requests of each, by which one that hangs is found.
    assert copies == [[1, 240], [2, 3]]
    assert (one, loggers) == ({}, 1)
