"""Probe what is held inside vLLM: by its source before anything is loaded, then as objects."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm import plugins
from lmi_backend.engines.vllm.inside import compat, elsewhere, forced_ids, holds, names, needs
from lmi_backend.engines.vllm.inside.continuation import Continuations
from lmi_backend.engines.vllm.inside.new_tokens import NewTokens
from lmi_backend.engines.vllm.inside.present import missing, missing_of_holds
from lmi_backend.engines.vllm.inside.stats import is_ours
from lmi_backend.engines.vllm.inside.table import NEEDS
from lmi_backend.engines.vllm.newness import is_newer

if TYPE_CHECKING:
    from lmi_backend.engine_config import EngineConfig

_log = logging.getLogger(__name__)

_IN_THE_CORE: Final = ("forced_tokens", "waits", "lora_rows", "single_process")
"""Holds on what runs in the process of vLLM's engine core."""


def before_loading(config: EngineConfig, *needed: str) -> None:
    """Probe the source of vLLM, before it is imported and any weight is loaded.

    Args:
        config: whose user may turn holds off.
        needed: names of what the engine is to have of `table.NEEDS`.

    Raises:
        ConfigurationError: this vLLM lacks a name for which there is no public way.
    """
    elsewhere.share()
    holds.choose(config.fast_paths)
    for need in NEEDS:
        if need.name in needed and (lacking := missing(need.names)):
            raise needs.unservable(f"it lacks {', '.join(lacking)}, needed for {need.purpose}")
    for name, lacking in missing_of_holds().items():
        if lacking:
            holds.let_go(name, "the names it stands on", f"missing: {', '.join(lacking)}")
    if holds.probe("forced_tokens", "a class of logits processors", _make_forced_tokens):
        plugins.install("forced_tokens")
    for name in ("waits", "lora_rows"):
        if holds.is_held(name):
            plugins.install(name)


def _make_forced_tokens() -> None:
    from lmi_backend.engines.vllm.inside.forced_tokens import ForcedTokens  # noqa: PLC0415

    if inspect.isabstract(ForcedTokens):
        raise TypeError(f"it wants {', '.join(sorted(ForcedTokens.__abstractmethods__))}")


def lets_go_of_core(error: Exception) -> bool:
    """Release the holds in the core's own process, after its start has failed.

    A core that fails while it starts does not say why. On a release that was run these holds are
    not the reason, and another start would only take its time.

    Returns:
        Whether there is a reason to start once more.
    """
    held = [name for name in _IN_THE_CORE if holds.is_held(name)]
    if not held or not is_newer(names.vllm_version):
        return False
    for name in held:
        holds.let_go(name, "a core that starts with it", f"{type(error).__name__}: {error}")
    plugins.remove()
    return True


def attach(engine: Any) -> None:
    """Put the holds into an AsyncLLM, or its double, whose core has started."""
    holds.probe(
        "fewer_counts",
        "loggers that can be left out, and log_stats of engine and processor",
        lambda: compat.count_less(engine, is_ours),
    )
    holds.probe(
        "new_tokens",
        "an output processor, and an output that can be made with a request and tokens alone",
        lambda: NewTokens(engine, names.EngineCoreOutput(request_id="", new_token_ids=[])).attach(),
    )
    holds.probe(
        "forced_tokens",
        "a class of logits processors for the model runner",
        lambda: forced_ids.check(engine),
    )
    # What repeats tokens sees them first.
    holds.probe(
        "resumption",
        "a core's client whose requests can be looked at",
        lambda: Continuations(engine).attach(),
    )
