"""Speculative decoding under vLLM: one JSON object now, many options before.

Each older option becomes a key of the object, so that old files keep working.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, JSON, TEXT, whole
from lmi_backend.options.option import AnyOption, ArgumentRows

_key: Final = ArgumentRows("speculative", "vllm", "speculative_config.")

SPECULATIVE_CONFIG: Final = ArgumentRows("speculative", "vllm")(
    "speculative_config", JSON, "Speculative decoding, as vLLM's JSON object.", default={}
)
DRAFT_MODEL: Final = _key(
    "speculative_draft_model",
    TEXT,
    "Draft model: hub id, local folder or s3:// prefix.",
    to="model",
    aliases=("option.speculative_model", "option.draft_model_id"),
)
LENGTH: Final = _key(
    "speculative_length",
    whole(1),
    "Tokens the draft model proposes in a step.",
    to="num_speculative_tokens",
    aliases=("option.num_speculative_tokens", "option.spec_length"),
)
ROWS: Final[tuple[AnyOption, ...]] = (
    _key(
        "draft_model_tp_size",
        whole(1),
        "Tensor parallel degree of the draft model: 1, or that of the model.",
        to="draft_tensor_parallel_size",
        aliases=("option.speculative_draft_tensor_parallel_size",),
    ),
    _key(
        "speculative_model_quantization",
        TEXT,
        "Quantisation of the draft model.",
        to="quantization",
    ),
    _key(
        "speculative_max_model_len",
        whole(1),
        "Longest sequence that is drafted for.",
        to="max_model_len",
    ),
    _key("ngram_prompt_lookup_max", whole(1), "Longest n-gram looked up.", to="prompt_lookup_max"),
    _key("ngram_prompt_lookup_min", whole(1), "Shortest n-gram looked up.", to="prompt_lookup_min"),
    ArgumentRows("lmi-dist", "vllm")(
        "record_acceptance_rate",
        BOOL,
        "Measure per request how many drafted tokens were accepted.",
        default=False,
        to="per_request_spec_decode_metrics",
        convert=lambda is_wanted: "summary" if is_wanted else "none",
    ),
)
