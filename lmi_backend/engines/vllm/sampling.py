"""Turn our Sampling into vLLM's SamplingParams."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, Final

from lmi_backend.engines.vllm.inside import names, needs
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
_NEUTRAL: Final[dict[str, Any]] = {
    "n": 1,
    "min_tokens": 0,
    "include_stop_str_in_output": False,
    "ignore_eos": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
}
"""Values that change nothing, besides None and an empty list."""
_NEEDED: Final = frozenset(
    {"max_tokens", "output_kind", "seed", "stop", "temperature", "top_k", "top_p"}
)
"""What requests are made with: no engine starts without."""
_FRESH: Final = "skip_clone"
"""Parameter by which vLLM's own server says that nobody else has its parameters: a copy of all that
is in them takes longer than they take to make. Older releases do not have it."""


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
    wanted = {
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
    fresh = {_FRESH: True} if _FRESH in _parameters(names.SamplingParams) else {}
    try:
        return names.SamplingParams(
            **defaults | given | _without_neutral(wanted) | fresh | _extra(sampling.extra)
        )
    except (TypeError, ValueError, names.VLLMClientError) as error:
        raise RequestError(f"are refused by vLLM: {error}", field="sampling parameters") from error


def check_parameters() -> None:
    """Look whether this vLLM's parameters have the names that requests are made with.

    Raises:
        ConfigurationError: they have others.
    """
    taken = _parameters(names.SamplingParams)
    if taken and (lacking := _NEEDED - taken):
        raise needs.unservable(f"SamplingParams takes no {', '.join(sorted(lacking))}")


def _without_neutral(wanted: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a release no longer takes, where it would change nothing."""
    unknown = wanted.keys() - (_parameters(names.SamplingParams) or wanted.keys())
    neutral = {name for name in unknown if wanted[name] in (None, [], _NEUTRAL.get(name))}
    return {name: value for name, value in wanted.items() if name not in neutral}


@lru_cache(maxsize=1)
def _parameters(kind: Any) -> frozenset[str]:
    """Return the names of what a class or function takes; none if it takes any, or tells none."""
    try:
        found = inspect.signature(kind).parameters.values()
    except ValueError:
        # Compiled ones may have no signature.
        return frozenset()
    takes_any = any(each.kind is each.VAR_KEYWORD for each in found)
    return frozenset() if takes_any else frozenset(each.name for each in found)


def _extra(extra: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's own parameters, with structured outputs as vLLM's object."""
    structure = extra.get("structured_outputs")
    if structure is None:
        return extra
    return extra | {"structured_outputs": names.StructuredOutputsParams(**structure)}
