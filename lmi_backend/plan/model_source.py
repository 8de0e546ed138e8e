"""Where the model, its adapters, the user's code and the interpreter are."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmi_backend.errors import PlanError
from lmi_backend.fetch.hub import HUB_ID
from lmi_backend.options.model_store import MODEL_FILES, has_model
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import lora
from lmi_backend.plan.custom import CustomFile, find_custom

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options import LmiOptions

S3 = "s3://"
# Linux's own bound. To look for links in a megabyte takes seconds.
_LONGEST_PATH = 4096
_ELSEWHERE = ("djl://", "http://", "https://")


@dataclass(frozen=True)
class Sources:
    """What a plan needs beside the options, looked for once."""

    custom: CustomFile | None
    """The user's own code."""
    model: str
    python: str


def find_sources(options: LmiOptions, environment: Mapping[str, str]) -> Sources:
    """Find the user's code, the model and the interpreter.

    Raises:
        ConfigurationError: one of them is not there, or cannot be used.
    """
    custom = find_custom(options)
    return Sources(custom, find_model(options, custom), find_interpreter(options, environment))


def find_interpreter(options: LmiOptions, environment: Mapping[str, str]) -> str:
    """Return the interpreter of the workers: the one asked for, else this one.

    Raises:
        OptionError: it is no executable file.
    """
    asked = options[opt.PYTHON_EXECUTABLE]
    path = shutil.which(asked, path=environment.get("PATH")) if asked else sys.executable
    if path is None:
        raise options.error(opt.PYTHON_EXECUTABLE, "is not an executable file")
    return path


def find_model(options: LmiOptions, custom: CustomFile | None = None) -> str:
    """Return the local folder, hub id or s3:// prefix; empty for an engine that needs no model.

    A relative path starts at the folder of serving.properties.

    Raises:
        OptionError: `option.model_id` cannot be a model.
        PlanError: there is no model in the folder either.
    """
    if not options.choice.spec.implementation.needs_model:
        return ""
    model_id = options[opt.MODEL_ID]
    if not model_id and custom is not None and custom.replaces_engine:
        return ""
    if model_id.startswith(_ELSEWHERE):
        problem = "cannot be fetched; accepted: a hub id, a local folder or an s3:// prefix"
        raise options.error(opt.MODEL_ID, problem)
    if model_id.startswith(S3):
        return model_id
    if model_id:
        return _in_a_form_that_is_read(options, _local_or_hub(options, model_id))
    if has_model(options.folder):
        return _in_a_form_that_is_read(options, str(options.folder.resolve()))
    raise PlanError(
        f"{options.folder}: no model: option.model_id is not set and the folder has no "
        f"{' or '.join(MODEL_FILES)}"
    )


def _in_a_form_that_is_read(options: LmiOptions, model: str) -> str:
    implementation = options.choice.spec.implementation
    config, mistral = (os.path.isfile(os.path.join(model, name)) for name in MODEL_FILES)
    if mistral and not config and not implementation.reads_mistral:
        raise PlanError(
            f"{model}: has params.json and no config.json: Mistral's own form, which "
            f"{implementation.title} does not read; vLLM does"
        )
    return model


def _local_or_hub(options: LmiOptions, model_id: str) -> str:
    # These functions, unlike pathlib's, take any text, and say of one that is too long: no folder.
    path = options.folder / os.path.expanduser(model_id)
    if os.path.isdir(path):
        return str(path.resolve())
    if model_id.startswith(("/", "./", "../", "~")):
        raise options.error(opt.MODEL_ID, f"is not a folder (looked at {os.path.abspath(path)})")
    if not HUB_ID.fullmatch(model_id):
        problem = "is neither a folder nor a hub id; accepted: organisation/model"
        raise options.error(opt.MODEL_ID, problem)
    return model_id


def find_adapters(options: LmiOptions) -> dict[str, str]:
    """Return name and folder of each LoRA adapter; none when LoRA is off."""
    if not options[lora.ENABLE_LORA]:
        return {}
    folder = options.folder / options[lora.ADAPTERS]
    if not os.path.isdir(folder):
        return {}
    return {
        config.parent.name: str(config.parent.resolve())
        for config in sorted(folder.glob("*/adapter_config.json"))
    }


def find_adapter_roots(options: LmiOptions) -> tuple[str, ...]:
    """Return the folders from which adapters may be loaded while serving; first the model's own.

    Raises:
        OptionError: one of those named does not exist, or cannot be a folder.
    """
    if not options[lora.ENABLE_LORA]:
        return ()
    own: str = options[lora.ADAPTERS]
    if len(os.fsencode(own)) > _LONGEST_PATH:
        problem = f"is no folder's name; accepted: at most {_LONGEST_PATH} bytes"
        raise options.error(lora.ADAPTERS, problem)
    further = [root.strip() for root in options[lora.ADAPTER_ROOTS].split(",") if root.strip()]
    for root in further:
        if not os.path.isdir(options.folder / root):
            raise options.error(lora.ADAPTER_ROOTS, f"names {root}, which is not a folder")
    return tuple(str((options.folder / root).resolve()) for root in (own, ".", *further))
