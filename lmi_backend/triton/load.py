"""From Triton's `initialize` arguments to a running service."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.registry import refuse_unserved
from lmi_backend.errors import OptionError, PlanError
from lmi_backend.options import load_options
from lmi_backend.plan import plan_model
from lmi_backend.repository.model_config import MODEL_DIR
from lmi_backend.repository.record import option_changes
from lmi_backend.serving.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.plan import EnginePlan

_log = logging.getLogger(__name__)


def load_service(
    args: dict[str, str], on_line: Callable[[str, str], None]
) -> tuple[Service, EnginePlan]:
    """Start the service of a Triton model and return it with its plan.

    Raises:
        LmiError: an option is wrong, or the workers cannot be started.
    """
    config = json.loads(args["model_config"])
    refuse_copies(config)
    folder = Path(args["model_repository"])
    name = args["model_name"]
    parameters = _parameters(config)
    base = Path(parameters[MODEL_DIR]) if MODEL_DIR in parameters else None
    options = load_options(folder, os.environ, base=base)
    for change in option_changes(parameters, options):
        _log.warning("%s: %s", name, change)
    plan = plan_model(
        options, os.environ, reach="model", say=lambda text: _log.info("%s: %s", name, text)
    )
    refuse_unserved(plan)
    for note in plan.notes:
        _log.warning("%s: %s", name, note)
    for reason in plan.reasons:
        _log.info("%s: %s", name, reason)
    service = Service(plan, name, on_line)
    try:
        capabilities = service.start()
    except OptionError as error:
        raise options.locate(error) from error
    _log.info(
        "%s: %s %s serves up to %d requests at once, each up to %d tokens",
        name,
        capabilities.engine,
        capabilities.version,
        plan.max_requests,
        capabilities.max_model_len,
    )
    return service, plan


def refuse_copies(config: dict[str, Any]) -> None:
    """Refuse a model that Triton would start more than once.

    Each start would be a whole copy of the engine on the same devices. It happens on a GPU server
    when no config.pbtxt names an instance group, and auto-complete cannot set one.

    Raises:
        PlanError: there is more than one instance.
    """
    groups = config.get("instance_group", [])
    copies = sum(group.get("count", 1) * max(1, len(group.get("gpus", []))) for group in groups)
    if copies > 1:
        message = (
            f"config.pbtxt: Triton would start this model {copies} times; accepted: one instance "
            "(instance_group [{ kind: KIND_MODEL, count: 1 }], which `lmi-backend convert` "
            "writes); replicas are set with minWorkers in serving.properties"
        )
        raise PlanError(message)


def _parameters(config: dict[str, Any]) -> dict[str, str]:
    entries: dict[str, dict[str, str]] = config.get("parameters", {})
    return {key: entry["string_value"] for key, entry in entries.items()}
