"""Turn our Sampling into a GenerationConfig, or into what a continuous batch takes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling

SEEDS: Final = 1 << 63
"""Seeds that each random generator takes, and their negatives."""
_ONE_BY_ONE: Final = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_p": 0.0,
}
"""What the library's continuous batch cannot do, with the value that turns each off."""


def is_sampled(sampling: Sampling, by_default: bool) -> bool:
    if sampling.temperature is not None:
        return sampling.temperature > 0 and sampling.top_k != 1
    if sampling.top_k == 1:
        return False
    return by_default or any(value is not None for value in (sampling.top_k, sampling.top_p))


def can_be_batched(request: GenerateRequest, *, is_drawn: bool) -> bool:
    """Tell whether the library's continuous batch can do what a request wants."""
    sampling = request.sampling
    return (
        request.logprobs is None
        and request.prompt_logprobs is None
        and not request.adapter
        and not sampling.extra
        and not sampling.bad_words
        and not sampling.min_tokens
        and not (is_drawn and sampling.seed is not None)
        and all(getattr(sampling, name) in (None, off) for name, off in _ONE_BY_ONE.items())
    )


def batch_arguments(
    sampling: Sampling, base: Any, vocabulary: int, *, is_drawn: bool
) -> dict[str, Any]:
    """Return the arguments of one request in a batch that samples; its types are exact.

    Args:
        base: the model's GenerationConfig.
    """
    if not is_drawn:
        return {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
    top_k = int(_first(sampling.top_k, base.top_k, 0))
    return {
        "temperature": float(_first(sampling.temperature, base.temperature, 1.0)),
        "top_k": min(top_k, vocabulary) if top_k > 0 else vocabulary,
        "top_p": float(_first(sampling.top_p, base.top_p, 1.0)),
    }


def generation_config(
    request: GenerateRequest, base: Any, ends: list[int], *, is_drawn: bool, vocabulary: int
) -> Any:
    """Return the GenerationConfig of a request that is generated alone.

    Raises:
        RequestError: it has a parameter that the library does not know.
    """
    sampling = request.sampling
    if (seed := sampling.seed) is not None and not -SEEDS <= seed < SEEDS:
        accepted = f"{-SEEDS} to {SEEDS - 1}"
        raise RequestError("is too large", field="seed", value=seed, accepted=accepted)
    made = copy.deepcopy(base)
    extra = dict(sampling.extra)
    if bias := extra.pop("logit_bias", None):
        check_token_ids("logit_bias", map(int, bias), vocabulary)
        extra["sequence_bias"] = [
            [[int(token_id)], float(value)] for token_id, value in bias.items()
        ]
    unknown = [name for name in extra if not hasattr(made, name)]
    if unknown:
        raise RequestError("is not a parameter of Transformers' generate", field=unknown[0])
    values: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "max_length": None,
        "min_new_tokens": sampling.min_tokens or None,
        "do_sample": is_drawn,
        # None would become the model's.
        "eos_token_id": ends or -1,
        "repetition_penalty": sampling.repetition_penalty or base.repetition_penalty,
        "num_return_sequences": 1,
        **extra,
    }
    names = ("temperature", "top_p", "top_k", "min_p")
    if is_drawn:
        values |= {name: v for name in names if (v := getattr(sampling, name)) is not None}
        # LMI turns top_k off by -1, the library by 0.
        values["top_k"] = max(0, values.get("top_k") or made.top_k or 0)
    else:
        values |= dict.fromkeys(names)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def check_token_ids(field: str, ids: Iterable[int], vocabulary: int) -> None:
    """Raise RequestError for an id that no token has: the library fails on it, as of a fault."""
    if (unknown := next((each for each in ids if not 0 <= each < vocabulary), None)) is not None:
        accepted = f"token ids from 0 to {vocabulary - 1}"
        raise RequestError("has an unknown token id", field=field, value=unknown, accepted=accepted)


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
