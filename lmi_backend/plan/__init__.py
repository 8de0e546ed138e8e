"""What we will run: the plan, and why."""

from lmi_backend.plan.engine_plan import EnginePlan
from lmi_backend.plan.planner import make_plan

__all__ = ["EnginePlan", "make_plan"]
