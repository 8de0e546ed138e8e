"""Gather what a plan needs: the model's config.json, wherever it is, and the machine.

What drafts tokens for the model is read too, as far as the options and config.json say it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from lmi_backend.errors import ConfigurationError, PlanError
from lmi_backend.fetch import copy_s3, fetch_s3, hub_file
from lmi_backend.fetch.hub import NO_FILE
from lmi_backend.fetch.weights import INDEX
from lmi_backend.options.signature import release_and_why
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import vllm
from lmi_backend.plan.hardware import Hardware, detect_hardware
from lmi_backend.plan.memory_options import config_overrides
from lmi_backend.plan.model_files import check_model_files, check_tokenizer, stored_tensors
from lmi_backend.plan.model_source import (
    S3,
    Sources,
    broken_adapters,
    find_sources,
    missing_adapters,
)
from lmi_backend.plan.planner import make_plan
from lmi_backend.plan.refusals import refuse_unserved
from lmi_backend.sizing.config_fields import MissingFieldError
from lmi_backend.sizing.model_facts import (
    Draft,
    ModelFacts,
    draft_model,
    mtp_layers,
    read_model_facts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import EnginePlan

_WITHOUT_LAYERS: Final = ("ngram", "[ngram]", "ngram_gpu", "suffix")
"""vLLM's methods that look tokens up."""
_WITHOUT_CACHE: Final = ("medusa", "mlp_speculator")


def with_draft(options: LmiOptions, facts: ModelFacts, read: _FactsFinder) -> ModelFacts:
    if not options.choice.spec.implementation.counts_memory_as_vllm:
        return facts
    config: Mapping[str, Any] | None = options[vllm.SPECULATIVE_CONFIG]
    config = config or {}
    model = str(config.get("model") or options[vllm.DRAFT_MODEL] or "")
    method = str(config.get("method") or "").lower()
    facts = replace(facts, drafted_tokens=_tokens(options, config, facts, model or method))
    looks_up = {method, model} & set(_WITHOUT_LAYERS) or "prompt_lookup_max" in config
    if looks_up or not (model or method):
        return facts
    return replace(facts, draft=_draft(facts, model, method, str(config.get("revision", "")), read))


def _tokens(options: LmiOptions, config: Mapping[str, Any], facts: ModelFacts, drafter: str) -> int:
    """Return how many tokens are guessed in a step; 0 where nothing guesses."""
    length = config.get("num_speculative_tokens") or options[vllm.LENGTH]
    if not drafter and "prompt_lookup_max" not in config:
        return 0
    # MTP layers guess one each unless told otherwise.
    is_number = isinstance(length, int) and not isinstance(length, bool) and length > 0
    return length if is_number else facts.shape.num_mtp_layers


def _draft(facts: ModelFacts, model: str, method: str, revision: str, read: _FactsFinder) -> Draft:
    if not model:
        unknown = Draft(name=f"drafting by {method}", uncounted="config.json numbers no layers")
        return mtp_layers(facts) or unknown
    name = f"draft model {model}"
    if method in _WITHOUT_CACHE:
        return Draft(name=name, uncounted=f"the weights of a {method}")
    own, reason, _ = read(model, revision)
    if own is None:
        return Draft(name=name, uncounted=f"its weights and cache: {reason}")
    shares = any("eagle" in text.lower() for text in (method, model, own.shape.architecture))
    return draft_model(own, name, shares_embeddings=shares)


_CONFIG = "config.json"
_QUANTISATION = "hf_quant_config.json"
"""ModelOpt's file; some config.json say nothing of its content."""

_LOAD_FORMATS = ("auto", "hf", "safetensors", "pt")
_OTHER_CONFIG = {"hf_config_path", "hf_overrides"}
_OTHER_TOKENIZER = {"tokenizer", "skip_tokenizer_init", "tokenizer_mode"}
"""Arguments with which the folder may have no tokenizer, or another kind of one."""

Reach = Literal["local", "config", "model"]
"""What may be fetched: nothing, the model's config.json, or the model."""


def plan_model(
    options: LmiOptions,
    environment: Mapping[str, str],
    *,
    hardware: Hardware | None = None,
    reach: Reach = "local",
    must_start: bool = True,
    say: Callable[[str], None] = print,
) -> EnginePlan:
    """Plan one model on this machine, or on a supposed one.

    Args:
        must_start: whether a plan that cannot be carried out here is refused.

    Raises:
        ConfigurationError: the options cannot be run, the plan cannot be carried out here, or (with
            reach "model") the model cannot be had.
    """
    sources = find_sources(options, environment)
    if reach == "model" and sources.model.startswith(S3):
        sources = replace(sources, model=str(fetch_s3(sources.model, environment, say=say)))
    _check_files(options, sources, must_be_whole=reach == "model")
    overrides = config_overrides(options) or {}
    find = _FactsFinder(options, sources.python, environment, reach, say, overrides)
    read = find(sources.model, options[opt.REVISION]) if sources.model else _ReadFacts(None)
    facts = read.facts
    if facts is not None:
        # The draft model decides about memory alone: a plan does without.
        facts = with_draft(options, facts, replace(find, must_have=False, overrides={}))
    hardware = hardware or detect_hardware(environment)
    plan = make_plan(options, environment, hardware, facts, sources)
    if must_start:
        refuse_unserved(plan)
    notes = [hardware.mask_problem] if hardware.mask_problem else []
    if options.supposed_release:
        notes.insert(0, f"planned for {release_and_why(options, sources.python)}")
    if missing := missing_adapters(plan.config.adapters):
        if reach == "model":
            raise PlanError(missing[0])
        notes += missing
    notes += broken_adapters(plan.config)
    if read.reason:
        notes.append(f"the size of the model is not known: {read.reason}")
    plan = replace(plan, notes=(*plan.notes, *notes), is_unread=read.is_unread)
    return _fetch_draft(plan, environment, say) if reach == "model" else plan


def _check_files(options: LmiOptions, sources: Sources, *, must_be_whole: bool) -> None:
    is_usual = options[vllm.LOAD_FORMAT] in _LOAD_FORMATS
    is_usual &= options.passthrough.keys().isdisjoint(_OTHER_CONFIG)
    reads_files = options.choice.spec.implementation.reads_checkpoints
    model, python = Path(sources.model), sources.python
    if is_usual and reads_files and os.path.isdir(sources.model):
        has_tokenizer = not options.passthrough.keys() & _OTHER_TOKENIZER
        check_model_files(model, python, has_tokenizer=has_tokenizer, must_be_whole=must_be_whole)
    tokenizer = options.passthrough.get("tokenizer")
    if reads_files and tokenizer and os.path.isabs(tokenizer.value):
        check_tokenizer(Path(tokenizer.value), python)


class _ReadFacts(NamedTuple):
    facts: ModelFacts | None
    reason: str = ""
    is_unread: bool = False
    """Whether the reason is that the model could not be fetched."""


@dataclass(frozen=True)
class _FactsFinder:
    options: LmiOptions
    python: str
    environment: Mapping[str, str]
    reach: Reach
    say: Callable[[str], None]
    overrides: Mapping[str, object]
    """What the engine is told to take instead of fields in config.json."""
    must_have: bool = True
    """Whether a model that is to be fetched must be there."""

    def __call__(self, model: str, revision: str) -> _ReadFacts:
        try:
            if model.startswith(S3):
                return _s3_facts(model, self.environment, self.reach, self.overrides)
            folder = Path(model)
            if not os.path.isdir(folder):  # A name may be too long for a path.
                if folder.is_absolute():
                    return _ReadFacts(None, f"{model} is not here")
                if self.environment.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
                    return _ReadFacts(None, f"{model} is on ModelScope, which is not supported")
                offline = {"HF_HUB_OFFLINE": "1"} if self.reach == "local" else {}
                around = {**self.environment, **offline}
                files = (_CONFIG, INDEX, _QUANTISATION)
                folder = hub_file(self.python, model, revision, files, around, self.say).parent
        except ConfigurationError as error:
            if self.reach == "local":
                return _ReadFacts(None, f"{model} is not downloaded yet")
            # An engine would find no model either. A plan alone may do without, and so may an
            # engine that reads Mistral's own format.
            implementation = self.options.choice.spec.implementation
            is_form = implementation.reads_mistral and NO_FILE in str(error)
            if self.reach == "model" and self.must_have and not is_form:
                raise
            return _ReadFacts(None, str(error), is_unread=True)
        if not self.must_have:
            stored_tensors(folder)
        return _read(folder, self.overrides)


def _read(folder: Path, overrides: Mapping[str, object]) -> _ReadFacts:
    try:
        facts = read_model_facts(folder, overrides)
    except MissingFieldError as error:
        return _ReadFacts(None, str(error))
    return _ReadFacts(facts, "" if facts else f"{folder} has no {_CONFIG}")


def _s3_facts(
    url: str, environment: Mapping[str, str], reach: Reach, overrides: Mapping[str, object]
) -> _ReadFacts:
    if reach == "local":
        return _ReadFacts(None, f"{url} is fetched when it is loaded")
    with tempfile.TemporaryDirectory() as name:
        copy_s3(url, Path(name), environment, only=(_CONFIG, INDEX, _QUANTISATION))
        read = _read(Path(name), overrides)
        reason = f"{url} has no readable {_CONFIG}"
        return read._replace(reason=reason, is_unread=True) if read.reason else read


def _fetch_draft(
    plan: EnginePlan, environment: Mapping[str, str], say: Callable[[str], None]
) -> EnginePlan:
    """Fetch the draft model of speculative decoding, if that is on S3 too."""
    draft = plan.config.arguments.get("speculative_config") or {}
    url = str(draft.get("model") or "")
    if not url.startswith(S3):
        return plan
    local = {**draft, "model": str(fetch_s3(url, environment, say=say))}
    arguments = {**plan.config.arguments, "speculative_config": local}
    return replace(plan, config=replace(plan.config, arguments=arguments))
