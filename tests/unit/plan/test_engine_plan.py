"""A plan as it may be shown to people."""

from dataclasses import fields, is_dataclass
from typing import Any

from lmi_backend.plan.engine_plan import without_secrets
from tests.unit.plan.test_planner import plan

TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuV"


def _groups(plan: Any) -> dict[str, type]:
    values = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return {name: type(value) for name, value in values.items() if is_dataclass(value)}


def test_secrets_of_options_and_of_the_environment_are_hidden() -> None:
    made = plan(f"option.rolling_batch=echo\noption.env=HF_TOKEN={TOKEN},PLACE=/srv/of-the-shell")
    assert TOKEN in repr(made)
    safe = without_secrets(made, {"AWS_SECRET_ACCESS_KEY": "/srv/of-the-shell"})
    assert TOKEN not in repr(safe)
    assert "/srv/of-the-shell" not in repr(safe)
    assert "PLACE" in repr(safe)
    assert _groups(safe) == _groups(made)
    assert without_secrets(safe, {}) == safe
