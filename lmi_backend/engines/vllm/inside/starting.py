"""Choose the ways into vLLM: what its processes are to load, and what its engine gets."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm import plugins
from lmi_backend.engines.vllm.inside import (
    compat,
    elsewhere,
    fast_paths,
    forced_ids,
    names,
    processor,
)
from lmi_backend.engines.vllm.inside.stats import is_ours
from lmi_backend.engines.vllm.newness import is_newer

if TYPE_CHECKING:
    from lmi_backend.engine_config import EngineConfig

_log = logging.getLogger(__name__)

_IN_THE_CORE: Final = ("forced_tokens", "waits", "lora_rows", "seeded_steps", "single_process")
"""Fast paths in the process of vLLM's engine core."""


def before_loading(config: EngineConfig) -> None:
    """Choose what vLLM's processes load of this package, before any of them starts.

    Args:
        config: whose user may turn fast paths off.
    """
    elsewhere.share()
    fast_paths.choose(config.fast_paths)
    plugins.install("closed_groups")
    if fast_paths.probe("forced_tokens", "a class of logits processors", _make_forced_tokens):
        plugins.install("forced_tokens")
    for name in ("waits", "lora_rows", "seeded_steps"):
        if fast_paths.is_on(name):
            plugins.install(name)


def _make_forced_tokens() -> None:
    from lmi_backend.engines.vllm.inside.forced_tokens import ForcedTokens  # noqa: PLC0415

    if inspect.isabstract(ForcedTokens):
        raise TypeError(f"it wants {', '.join(sorted(ForcedTokens.__abstractmethods__))}")


def turns_off_core_paths(error: Exception) -> bool:
    """Turn off the fast paths in the core's own process, after its start has failed.

    A core that fails while it starts does not say why. On a release that was run these are
    not the reason, and another start would only take its time.

    Returns:
        Whether there is a reason to start once more.
    """
    in_use = [name for name in _IN_THE_CORE if fast_paths.is_on(name)]
    if not in_use or not is_newer(names.vllm_version):
        return False
    for name in in_use:
        fast_paths.turn_off(name, "a core that starts with it", f"{type(error).__name__}: {error}")
    plugins.remove()
    return True


def _counts(engine: Any) -> str:
    """Return which option of the user's has vLLM count each output; empty if none has."""
    config = getattr(engine.vllm_config, "observability_config", None)
    has_traces = getattr(config, "otlp_traces_endpoint", None)
    return "otlp_traces_endpoint has vLLM count each output" if has_traces else ""


def attach(engine: Any) -> None:
    """Put the fast paths into an AsyncLLM, or its double, whose core has started."""
    fast_paths.probe(
        "fewer_counts",
        "loggers that can be left out, and log_stats of engine and processor",
        lambda: compat.count_less(engine, is_ours),
    )
    fast_paths.probe(
        "forced_tokens",
        "a class of logits processors for the model runner",
        lambda: forced_ids.check(engine),
    )
    if not fast_paths.probe(
        "resumption", "an output processor to subclass", lambda: processor.attach(engine)
    ):
        fast_paths.turn_off("own_streams", "an output processor to subclass", "it is off")
    if why := _counts(engine):
        fast_paths.leave_out("own_streams", why)
