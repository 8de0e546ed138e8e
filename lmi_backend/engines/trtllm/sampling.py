"""Turn our Sampling into TensorRT-LLM's SamplingParams."""

from __future__ import annotations

import secrets
from typing import Any, Final

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
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)


_ONCE: Final = (
    "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "stop",
    "stop_token_ids", "bad_words", "extra",
)  # fmt: skip
"""What may look at the tokens of an answer in another way than at those of a prompt."""


def can_go_on(request: GenerateRequest) -> bool:
    """Tell whether a stream could resume with its tokens as a part of the prompt."""
    is_plain = request.n == 1 and request.logprobs is None and request.prompt_logprobs is None
    return is_plain and not any(getattr(request.sampling, name) for name in _ONCE)


def sampling_params(request: GenerateRequest, num_known: int = 0) -> Any:
    """Return the SamplingParams of one request; the library writes into it.

    Args:
        num_known: tokens of the answer that are given as a part of the prompt.

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
            max_tokens=sampling.max_tokens - num_known,
            min_tokens=max(0, sampling.min_tokens - num_known) or None,
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
