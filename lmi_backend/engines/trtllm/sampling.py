"""Turn our Sampling into TensorRT-LLM's SamplingParams."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.trtllm import compat
from lmi_backend.errors import RequestError

if TYPE_CHECKING:
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
    asked = request.sampling
    extra = dict(asked.extra)
    structure = extra.pop("structured_outputs", None)
    try:
        return compat.SamplingParams(
            **{name: getattr(asked, name) for name in _SAME},
            top_k=None if asked.top_k is None else max(0, asked.top_k),
            n=request.n,
            # Its own default is always the same seed.
            seed=asked.seed if asked.seed is not None else secrets.randbits(63),
            min_tokens=asked.min_tokens or None,
            stop=list(asked.stop) or None,
            stop_token_ids=list(asked.stop_token_ids) or None,
            include_stop_str_in_output=asked.include_stop,
            bad=list(asked.bad_words) or None,
            logprobs=_places(request.logprobs),
            prompt_logprobs=_places(request.prompt_logprobs),
            guided_decoding=compat.GuidedDecodingParams(**structure) if structure else None,
            **extra,
        )
    except (TypeError, ValueError) as error:
        problem = f"are refused by TensorRT-LLM: {error}"
        raise RequestError(problem, field="sampling parameters") from error


def _places(alternatives: int | None) -> int | None:
    """Return how many places the library is asked for: 0 would mean none, not the token alone."""
    return None if alternatives is None else max(1, alternatives)
