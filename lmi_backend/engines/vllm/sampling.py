"""Turn our Sampling into vLLM's SamplingParams."""

from __future__ import annotations

from typing import Any

from lmi_backend.engines.vllm.inside import names
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest

# Where one of these is None, the model's generation_config.json decides, then vLLM.
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


def sampling_params(
    request: GenerateRequest, model_defaults: dict[str, Any], vocabulary: int
) -> Any:
    """Return the SamplingParams of a request.

    Args:
        request: what is wanted.
        model_defaults: what the model's generation_config.json says.
        vocabulary: ids of tokens are below it.

    Raises:
        RequestError: vLLM refuses a value.
    """
    sampling = request.sampling
    given = {name: value for name in _OPTIONAL if (value := getattr(sampling, name)) is not None}
    defaults = {name: model_defaults[name] for name in _OPTIONAL if name in model_defaults}
    kind = names.RequestOutputKind
    try:
        return names.SamplingParams(
            **defaults
            | given
            | {
                "n": request.n,
                "logprobs": request.logprobs,
                "prompt_logprobs": request.prompt_logprobs,
                "max_tokens": sampling.max_tokens,
                "min_tokens": sampling.min_tokens,
                "stop": list(sampling.stop),
                # Clients of TensorRT-LLM's backend send an end_id that no model has, so that
                # nothing ends the answer, or another model's; vLLM refuses it.
                "stop_token_ids": [i for i in sampling.stop_token_ids if 0 <= i < vocabulary],
                "include_stop_str_in_output": sampling.include_stop,
                "ignore_eos": sampling.ignore_eos,
                "skip_special_tokens": sampling.skip_special_tokens,
                "spaces_between_special_tokens": sampling.spaces_between_special_tokens,
                "bad_words": list(sampling.bad_words) or None,
                "output_kind": kind.DELTA if request.stream else kind.FINAL_ONLY,
            }
            | _extra(sampling.extra)
        )
    except (TypeError, ValueError, names.VLLMClientError) as error:
        raise RequestError(f"are refused by vLLM: {error}", field="sampling parameters") from error


def _extra(extra: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's own parameters, with structured outputs as vLLM's object."""
    structure = extra.get("structured_outputs")
    if structure is None:
        return extra
    return extra | {"structured_outputs": names.StructuredOutputsParams(**structure)}
