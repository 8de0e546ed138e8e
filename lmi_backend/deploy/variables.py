"""The variables that a plan was made with, and which of them a deployment writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lmi_backend.options.model_store import LOAD_MODELS, MODEL_STORE, model_urls
from lmi_backend.options.sources import ORIGIN
from lmi_backend.options.spec import FEATURES
from lmi_backend.options.table import VARIABLES
from lmi_backend.options.table import common as opt
from lmi_backend.redaction import is_secret, secrets_of

if TYPE_CHECKING:
    from lmi_backend.options import LmiOptions

_PLANNER: Final = ("VLLM_CPU_KVCACHE_SPACE", "VLLM_PLUGINS", "VLLM_USE_MODELSCOPE")
"""Variables of the engine that decide about a plan, though no option has them."""
_BUCKET: Final = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


def variables_of(
    options: LmiOptions, *, place: str, name: str
) -> tuple[dict[str, str], list[str], set[str]]:
    """Sort the variables that options were read from; the server has the folder at `place`.

    Returns those to write, the names of secret ones, and the names of those that describe a machine
    and not the model.
    """
    machine = _names(options, opt.PYTHON_EXECUTABLE.name)
    from_variables = [each for each in options.classifications if each.setting.origin == ORIGIN]
    names = {each.setting.name for each in from_variables}
    of_server = {each for each in names if _is_of_machine(each)} | machine
    bucket = _BUCKET if options[opt.MODEL_ID].startswith("s3://") else ()
    carried = {each for each in (*names, *_PLANNER, *bucket) if os.environ.get(each)}
    carried -= {*of_server, LOAD_MODELS, MODEL_STORE}
    secret = {each for each in carried if _is_secret(each, os.environ[each])}
    written = {each: os.environ[each] for each in sorted(carried - secret)}
    if entry := _load_entry(options, place=place, name=name):
        written[LOAD_MODELS] = entry
    return written, sorted(secret), of_server


def _is_of_machine(name: str) -> bool:
    status = VARIABLES.get(name)
    is_used = status is not None and status.word == "mapped"
    return is_used and name not in (FEATURES, LOAD_MODELS)


def _names(options: LmiOptions, option: str) -> set[str]:
    setting = options.settings.get(option)
    return {setting.name} if setting and setting.origin == ORIGIN else set()


def _is_secret(name: str, value: str) -> bool:
    return is_secret(name) or any(is_secret(key) for key, _ in secrets_of(name, value))


def _load_entry(options: LmiOptions, *, place: str, name: str) -> str:
    """Return SERVING_LOAD_MODELS for the model alone, if it says engine or devices of it."""
    for entry in model_urls(os.environ.get(LOAD_MODELS, "")):
        if entry.is_for(options.folder) and (entry.engine or entry.devices):
            return f"{name}::{entry.engine}:{entry.devices or '*'}={place}"
    return ""


def interpreter_of(options: LmiOptions, python: str) -> dict[str, str]:
    """Return PYTHON_EXECUTABLE for a server on this machine, if a variable named it."""
    return {name: os.path.abspath(python) for name in _names(options, opt.PYTHON_EXECUTABLE.name)}
