"""What the worker says of a vLLM that is newer than any that the tests have run on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.releases import newer_than_run

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)


def is_newer(version: str) -> bool:
    """Tell whether a release is newer than any that the tests have run on."""
    return bool(newer_than_run(implementations()["vllm"], version))


def say_if_newer(version: str, states: Mapping[str, str]) -> None:
    """Warn of a release that is newer than any that was run, with how many fast paths hold.

    Args:
        states: each fast path and why it is off; empty for one that holds.
    """
    count = sum(not reason for reason in states.values())
    held = f"{count} of {len(states)} fast paths hold"
    if newer := newer_than_run(implementations()["vllm"], version, held):
        _log.warning("%s", newer)
