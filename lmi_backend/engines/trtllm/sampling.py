"""Turn our Sampling into TensorRT-LLM's SamplingParams."""

from __future__ import annotations

import secrets
from typing import Any

from lmi_backend.engines.trtllm import compat
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest

# None means the same to the library; without temperature, top_k and top_p it is greedy.
_SAME = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)


def sampling_params(request: GenerateRequest) -> Any:
    """Return the SamplingParams of one request; the library writes into it.

    Raises:
        RequestError: the library refuses a value.
    """
    sampling = request.sampling
    extra = dict(sampling.extra)
    structure = extra.pop("structured_outputs", None)
    try:
        return compat.SamplingParams(
            **{name: getattr(sampling, name) for name in _SAME},
            top_k=None if sampling.top_k is None else max(0, sampling.top_k),
            n=request.n,
            # Its own default is always the same seed.
            seed=sampling.seed if sampling.seed is not None else secrets.randbits(63),
            min_tokens=sampling.min_tokens or None,
            stop=list(sampling.stop) or None,
            stop_token_ids=list(sampling.stop_token_ids) or None,
            include_stop_str_in_output=sampling.include_stop,
            bad=list(sampling.bad_words) or None,
            logprobs=_num_logprobs(request.logprobs),
            prompt_logprobs=_num_logprobs(request.prompt_logprobs),
            guided_decoding=compat.GuidedDecodingParams(**structure) if structure else None,
            **extra,
        )
    except (TypeError, ValueError) as error:
        problem = f"are refused by TensorRT-LLM: {error}"
        raise RequestError(problem, field="sampling parameters") from error


def _num_logprobs(alternatives: int | None) -> int | None:
    """Return the count that the library wants, for which 0 means none, not the token alone."""
    return None if alternatives is None else max(1, alternatives)
