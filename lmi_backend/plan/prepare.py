"""Gather what a plan needs: the model's config.json, wherever it is, and the machine."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch import fetch_s3, fetch_s3_file, hub_file
from lmi_backend.fetch.hub import NO_FILE
from lmi_backend.options.table import common as opt
from lmi_backend.plan.drafts import with_draft
from lmi_backend.plan.hardware import Hardware, detect_hardware
from lmi_backend.plan.model_source import S3, find_sources
from lmi_backend.plan.planner import make_plan
from lmi_backend.sizing.config_fields import MissingFieldError
from lmi_backend.sizing.model_facts import ModelFacts, read_model_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import EnginePlan

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
"""Has the size of the weights, where they are in several files."""

Reach = Literal["local", "config", "model"]
"""What may be fetched: nothing, the model's config.json, or the model."""


def plan_model(
    options: LmiOptions,
    environment: Mapping[str, str],
    *,
    hardware: Hardware | None = None,
    reach: Reach = "local",
    say: Callable[[str], None] = print,
) -> EnginePlan:
    """Plan one model on this machine, or on a supposed one.

    `say` is told of the progress of a download.

    Raises:
        ConfigurationError: the options cannot be run, or (with reach "model") the model cannot be
            had.
    """
    sources = find_sources(options, environment)
    if reach == "model" and sources.model.startswith(S3):
        sources = replace(sources, model=str(fetch_s3(sources.model, environment, say=say)))
    find = _FactsFinder(options, sources.python, environment, reach, say)
    facts, doubt = find(sources.model, options[opt.REVISION]) if sources.model else (None, "")
    if facts is not None:
        # The draft model decides about memory alone: a plan does without.
        facts = with_draft(options, facts, replace(find, must_have=False))
    hardware = hardware or detect_hardware(environment)
    plan = make_plan(options, environment, hardware, facts, sources)
    if hardware.doubt:
        plan = replace(plan, notes=(*plan.notes, hardware.doubt))
    if doubt:
        plan = replace(plan, notes=(*plan.notes, f"the size of the model is not known: {doubt}"))
    return _fetch_draft(plan, environment, say) if reach == "model" else plan


@dataclass(frozen=True)
class _FactsFinder:
    """Finds the facts of a model, or why they are not known."""

    options: LmiOptions
    python: str
    environment: Mapping[str, str]
    reach: Reach
    say: Callable[[str], None]
    must_have: bool = True
    """Whether a model that is to be fetched must be there."""

    def __call__(self, model: str, revision: str) -> tuple[ModelFacts | None, str]:
        try:
            if model.startswith(S3):
                return _s3_facts(model, self.environment, self.reach)
            folder = Path(model)
            if not folder.is_dir():
                if self.environment.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
                    return None, f"{model} is on ModelScope, which is not asked"
                folder = self._on_hub(model, revision)
        except ConfigurationError as error:
            if self.reach == "local":
                return None, f"{model} is not in the local cache"
            # An engine would find no model either; whoever only plans may do so without.
            # Whoever reads Mistral's own form needs no config.json.
            implementation = self.options.choice.spec.implementation
            is_form = implementation.reads_mistral and NO_FILE in str(error)
            if self.reach == "model" and self.must_have and not is_form:
                raise
            return None, str(error)
        return _read(folder)

    def _on_hub(self, model: str, revision: str) -> Path:
        offline = {"HF_HUB_OFFLINE": "1"} if self.reach == "local" else {}
        where = {**self.environment, **offline}
        files = (_CONFIG, _INDEX)
        return hub_file(self.python, model, revision, files, where, self.say).parent


def _read(folder: Path) -> tuple[ModelFacts | None, str]:
    try:
        facts = read_model_facts(folder)
    except MissingFieldError as error:
        return None, str(error)
    return facts, "" if facts else f"{folder} has no {_CONFIG}"


def _s3_facts(
    url: str, environment: Mapping[str, str], reach: Reach
) -> tuple[ModelFacts | None, str]:
    if reach == "local":
        return None, f"{url} is fetched when it is loaded"
    with tempfile.TemporaryDirectory() as name:
        for file in (_CONFIG, _INDEX):
            if (data := fetch_s3_file(url, file, environment)) is not None:
                (Path(name) / file).write_bytes(data)
        facts, doubt = _read(Path(name))
        return facts, doubt and f"{url} has no readable {_CONFIG}"


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
