"""A plan as it may be shown to people."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from lmi_backend.redaction import Redactor, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.plan.engine_plan import EnginePlan


def without_secrets(plan: EnginePlan, environment: Mapping[str, str]) -> EnginePlan:
    """Return a plan without the secrets in it, and without those of an environment."""
    redact = Redactor(environment, plan.secrets())
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return replace(plan, **{name: redact.each(shown(name, each)) for name, each in values.items()})
