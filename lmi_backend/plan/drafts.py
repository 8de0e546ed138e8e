"""What drafts tokens for a model, as far as the options and config.json say it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.options.table import vllm
from lmi_backend.sizing.draft import Draft, draft_model, mtp_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.sizing.model_facts import ModelFacts

    ReadFacts = Callable[[str, str], tuple[ModelFacts | None, str, bool]]
    """Takes a model and its revision; returns its facts, or why they are not known."""

_WITHOUT_LAYERS: Final = ("ngram", "[ngram]", "ngram_gpu", "suffix")
"""vLLM's methods that look tokens up."""
_WITHOUT_CACHE: Final = ("medusa", "mlp_speculator")


def with_draft(options: LmiOptions, facts: ModelFacts, read: ReadFacts) -> ModelFacts:
    """Return the facts of a model, with its draft model if the options have one."""
    if not options.choice.spec.implementation.counts_memory_as_vllm:
        return facts
    asked: Mapping[str, Any] | None = options[vllm.SPECULATIVE_CONFIG]
    asked = asked or {}
    model = str(asked.get("model") or options[vllm.DRAFT_MODEL] or "")
    method = str(asked.get("method") or "").lower()
    facts = replace(facts, drafted_tokens=_tokens(options, asked, facts, model or method))
    looks_up = {method, model} & set(_WITHOUT_LAYERS) or "prompt_lookup_max" in asked
    if looks_up or not (model or method):
        return facts
    return replace(facts, draft=_draft(facts, model, method, str(asked.get("revision", "")), read))


def _tokens(options: LmiOptions, asked: Mapping[str, Any], facts: ModelFacts, drafter: str) -> int:
    """Return how many tokens are guessed in a step; 0 where nothing guesses."""
    length = asked.get("num_speculative_tokens") or options[vllm.LENGTH]
    if not drafter and "prompt_lookup_max" not in asked:
        return 0
    # MTP layers guess one each unless told otherwise.
    is_number = isinstance(length, int) and not isinstance(length, bool) and length > 0
    return length if is_number else facts.num_mtp_layers


def _draft(facts: ModelFacts, model: str, method: str, revision: str, read: ReadFacts) -> Draft:
    if not model:
        unknown = Draft(name=f"drafting by {method}", uncounted="config.json numbers no layers")
        return mtp_layers(facts) or unknown
    name = f"draft model {model}"
    if method in _WITHOUT_CACHE:
        return Draft(name=name, uncounted=f"the weights of a {method}")
    own, reason, _ = read(model, revision)
    if own is None:
        return Draft(name=name, uncounted=f"its weights and cache: {reason}")
    shares = any("eagle" in text.lower() for text in (method, model, own.architecture))
    return draft_model(own, name, shares_embeddings=shares)
