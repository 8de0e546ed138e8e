"""What we will run: the plan, and why."""

from lmi_backend.plan.engine_plan import EnginePlan
from lmi_backend.plan.prepare import plan_model

__all__ = ["EnginePlan", "plan_model"]
