"""Gather what a plan needs: the model's config.json, wherever it is, and the machine."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch import fetch_s3, fetch_s3_file, hub_file
from lmi_backend.fetch.hub import NO_FILE
from lmi_backend.options.table import common as opt
from lmi_backend.plan.hardware import Hardware, detect_hardware
from lmi_backend.plan.model_source import S3, Sources, find_sources
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
    facts, doubt = _facts(options, sources, environment, reach, say)
    hardware = hardware or detect_hardware(environment)
    plan = make_plan(options, environment, hardware, facts, sources)
    if hardware.doubt:
        plan = replace(plan, notes=(*plan.notes, hardware.doubt))
    if doubt:
        plan = replace(plan, notes=(*plan.notes, f"the size of the model is not known: {doubt}"))
    return _fetch_draft(plan, environment, say) if reach == "model" else plan


def _facts(
    options: LmiOptions,
    sources: Sources,
    environment: Mapping[str, str],
    reach: Reach,
    say: Callable[[str], None],
) -> tuple[ModelFacts | None, str]:
    """Return the facts of the model, or why they are not known."""
    model = sources.model
    if not model:
        return None, ""
    try:
        if model.startswith(S3):
            return _s3_facts(model, environment, reach)
        folder = Path(model)
        if not folder.is_dir():
            if environment.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
                return None, f"{model} is on ModelScope, which is not asked"
            where = {**environment, **({"HF_HUB_OFFLINE": "1"} if reach == "local" else {})}
            revision: str = options[opt.REVISION]
            config = hub_file(sources.python, model, revision, (_CONFIG, _INDEX), where, say)
            folder = config.parent
    except ConfigurationError as error:
        if reach == "local":
            return None, f"{model} is not in the local cache"
        # An engine would find no model either; whoever only plans may do so without.
        # Whoever reads Mistral's own form needs no config.json.
        is_form = options.choice.spec.implementation.reads_mistral and NO_FILE in str(error)
        if reach == "model" and not is_form:
            raise
        return None, str(error)
    return _read(folder)


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
