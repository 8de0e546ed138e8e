"""The ids that a request is to generate first, in its parameters: `forced_tokens` reads them.

This module needs no name of vLLM's to be imported, as the plugin's class does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, names

if TYPE_CHECKING:
    from collections.abc import Sequence

_IDS: Final = "lmi_backend.forced_ids"
"""Key of `SamplingParams.extra_args`."""


def are_taken(engine: Any) -> bool:
    """Tell whether an engine's cores apply the plugin."""
    return fast_paths.is_on("forced_tokens") and engine.vllm_config.speculative_config is None


def check(engine: Any) -> None:
    """Look for the class that the model runner of an engine's cores takes.

    Raises:
        LookupError: it is the second runner, and vLLM has no class for it.
    """
    is_second = getattr(engine.vllm_config, "use_v2_model_runner", None)  # between 0.20 and 0.32
    if is_second is None:
        is_second = getattr(names.envs, "VLLM_USE_V2_MODEL_RUNNER", False)  # 0.13
    if is_second and names.LogitsProcessor is None:
        (place,) = names.NAMES["LogitsProcessor"].places
        raise LookupError(f"vLLM's second model runner has no LogitsProcessor in {place}")


def add(params: Any, ids: Sequence[int]) -> None:
    """Have a request generate these tokens first; they must be in the vocabulary."""
    params.extra_args = extra_args(params, ids)


def extra_args(params: Any, ids: Sequence[int]) -> dict[str, Any]:
    """Return what `add` sets."""
    return {**(params.extra_args or {}), _IDS: list(ids)}


def remove(params: Any) -> None:
    """Drop from parameters, where a request has any, what `add` would have added."""
    if given := getattr(params, "extra_args", None):
        given.pop(_IDS, None)


def of(params: Any) -> list[int]:
    """Return what `add` has put into parameters."""
    return (params.extra_args or {}).get(_IDS) or []
