"""A plan as it may be shown to people."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from lmi_backend.redaction import Redactor, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.plan.engine_plan import EnginePlan

T = TypeVar("T")


def without_secrets(plan: EnginePlan, environment: Mapping[str, str]) -> EnginePlan:
    """Return a plan without the secrets in it, and without those of an environment."""
    return _hidden(plan, Redactor(environment, plan.secrets()))


def _hidden(group: T, redact: Redactor) -> T:
    values = {each.name: getattr(group, each.name) for each in fields(group)}  # type: ignore[arg-type]
    hidden = {
        name: _hidden(value, redact)
        if is_dataclass(value) and not isinstance(value, type)
        else redact.each(shown(name, value))
        for name, value in values.items()
    }
    return replace(group, **hidden)  # type: ignore[type-var]
