"""Speculative decoding under vLLM: one JSON object now, many options before.

Each older option becomes a key of the object, so that old files keep working.
"""

from __future__ import annotations

from typing import Any, Final

from lmi_backend.options.kinds import BOOL, JSON, TEXT, Kind, whole
from lmi_backend.options.option import AnyOption, Option

SPECULATIVE_CONFIG: Final = Option(
    name="option.speculative_config",
    kind=JSON,
    default={},
    scope="speculative",
    engine_args={"vllm": "speculative_config"},
    help="Speculative decoding, as vLLM's JSON object.",
)


def _key(name: str, kind: Kind[Any], key: str, meaning: str, *aliases: str) -> AnyOption:
    return Option(
        name=f"option.{name}",
        kind=kind,
        default=None,
        scope="speculative",
        aliases=tuple(f"option.{alias}" for alias in aliases),
        engine_args={"vllm": f"speculative_config.{key}"},
        help=meaning,
    )


DRAFT_MODEL: Final = _key(
    "speculative_draft_model",
    TEXT,
    "model",
    "Draft model: hub id, local folder or s3:// prefix.",
    "speculative_model",
    "draft_model_id",
)
NUM_TOKENS: Final = _key(
    "speculative_length",
    whole(1),
    "num_speculative_tokens",
    "Tokens the draft model proposes in a step.",
    "num_speculative_tokens",
    "spec_length",
)
DRAFT_TENSOR_PARALLEL: Final = _key(
    "draft_model_tp_size",
    whole(1),
    "draft_tensor_parallel_size",
    "Tensor parallel degree of the draft model: 1, or that of the model.",
    "speculative_draft_tensor_parallel_size",
)
DRAFT_QUANTIZATION: Final = _key(
    "speculative_model_quantization", TEXT, "quantization", "Quantisation of the draft model."
)
DRAFT_MAX_MODEL_LEN: Final = _key(
    "speculative_max_model_len", whole(1), "max_model_len", "Longest sequence that is drafted for."
)
PROMPT_LOOKUP_MAX: Final = _key(
    "ngram_prompt_lookup_max", whole(1), "prompt_lookup_max", "Longest n-gram looked up."
)
PROMPT_LOOKUP_MIN: Final = _key(
    "ngram_prompt_lookup_min", whole(1), "prompt_lookup_min", "Shortest n-gram looked up."
)
RECORD_ACCEPTANCE: Final = Option(
    name="option.record_acceptance_rate",
    kind=BOOL,
    default=False,
    scope="lmi-dist",
    engine_args={"vllm": "per_request_spec_decode_metrics"},
    convert=lambda is_wanted: "summary" if is_wanted else "none",
    help="Measure per request how many drafted tokens were accepted.",
)
