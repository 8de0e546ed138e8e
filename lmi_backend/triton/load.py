"""From Triton's `initialize` arguments to a running service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lmi_backend.endpoint.client import AliasModel
from lmi_backend.repository.variants import SHARES
from lmi_backend.triton.hand_written import checked_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmi_backend.triton.workers import WorkersModel


def load_model(
    args: dict[str, str],
    on_line: Callable[[str, str], None],
    on_secrets: Callable[[Iterable[tuple[str, str]]], None],
) -> AliasModel | WorkersModel:
    """Start what a Triton model needs and return it.

    Args:
        args: those of Triton's `initialize`.
        on_line: gets a worker's name and each line it prints.
        on_secrets: gets names and values of what the log must not show, once they are known.

    Raises:
        LmiError: an option is wrong, or the workers cannot be started.
    """
    config = json.loads(args["model_config"])
    # Also where the server completes no configuration.
    checked_variant(config)
    parameters = _parameters(config)
    if SHARES in parameters:
        return AliasModel(parameters[SHARES])
    # An alias model needs none of this: each of them starts 0.1 s sooner and takes 8 MB less.
    from lmi_backend.triton.workers import start_workers  # noqa: PLC0415

    return start_workers(args, on_line, on_secrets)


def reports_vllm_metrics(args: dict[str, str]) -> bool:
    """Tell whether vLLM's names of metrics are wanted, as Triton's vLLM backend is told."""
    text = _parameters(json.loads(args["model_config"])).get("REPORT_CUSTOM_METRICS", "")
    return text.strip().lower() not in ("false", "no", "0")


def _parameters(config: dict[str, Any]) -> dict[str, str]:
    entries: dict[str, dict[str, str]] = config.get("parameters", {})
    return {key: entry["string_value"] for key, entry in entries.items()}
