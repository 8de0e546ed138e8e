"""Turn our Sampling into vLLM's SamplingParams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmi_backend.engines.vllm import compat
from lmi_backend.errors import RequestError

if TYPE_CHECKING:
    from lmi_backend.generation import GenerateRequest

# Fields where None means "not said": the model's generation_config.json speaks, then vLLM.
_OPTIONAL = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)


def sampling_params(request: GenerateRequest, model_defaults: dict[str, Any]) -> Any:
    """Return the SamplingParams of a request.

    Raises:
        RequestError: vLLM refuses a value.
    """
    asked = request.sampling
    said = {name: value for name in _OPTIONAL if (value := getattr(asked, name)) is not None}
    unsaid = {name: model_defaults[name] for name in _OPTIONAL if name in model_defaults}
    kind = compat.RequestOutputKind
    try:
        return compat.SamplingParams(
            **unsaid
            | said
            | {
                "n": request.n,
                "logprobs": request.logprobs,
                "prompt_logprobs": request.prompt_logprobs,
                "max_tokens": asked.max_tokens,
                "min_tokens": asked.min_tokens,
                "stop": list(asked.stop),
                "stop_token_ids": list(asked.stop_token_ids),
                "include_stop_str_in_output": asked.include_stop,
                "ignore_eos": asked.ignore_eos,
                "skip_special_tokens": asked.skip_special_tokens,
                "spaces_between_special_tokens": asked.spaces_between_special_tokens,
                "bad_words": list(asked.bad_words) or None,
                "output_kind": kind.DELTA if request.stream else kind.FINAL_ONLY,
            }
            | _extra(asked.extra)
        )
    except (TypeError, ValueError, compat.VLLMClientError) as error:
        problem = f"are refused by vLLM: {error}"
        raise RequestError(problem, field="sampling parameters") from error


def _extra(extra: dict[str, Any]) -> dict[str, Any]:
    """Build what vLLM wants as an object of its own."""
    structure = extra.get("structured_outputs")
    if structure is None:
        return extra
    return extra | {"structured_outputs": compat.StructuredOutputsParams(**structure)}
