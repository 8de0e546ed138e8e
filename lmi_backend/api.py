"""The Python API: check a folder, plan it, list the options. Nothing is started or sent.

Variables of the process count, as they do for the command line. Secrets are left out of what is
returned.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend.cli.check import examine
from lmi_backend.cli.folders import LmiFolder, model_folder
from lmi_backend.cli.options import OptionRow as Option
from lmi_backend.cli.options import table
from lmi_backend.cli.planning import Machine, options_of
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.spec import default_engine
from lmi_backend.options.table import ENGINES
from lmi_backend.plan import plan_model
from lmi_backend.plan.engine_plan import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.plan import EnginePlan

__all__ = [
    "Checked",
    "ConfigurationError",
    "Machine",
    "Option",
    "Plan",
    "Setting",
    "check",
    "options",
    "plan",
]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting of a file or a variable, and what becomes of it."""

    name: str
    value: str
    origin: str
    """File and line, or "environment"."""
    status: str
    """Either mapped, passed, ignored or refused."""
    detail: str


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What becomes of each setting of a folder."""

    model: str
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    """Why the model is refused; empty if it is not."""
    release: str
    """The release of the engine that the settings are judged by, and why it is this one. Another
    may refuse less or more. Empty for an engine without releases."""

    @property
    def is_served(self) -> bool:
        """Whether nothing is refused."""
        return not self.problems


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would run."""

    model: str
    """Folder, hub id or s3:// prefix."""
    engine: str
    mode: str
    """Either python or mpi."""
    workers: int
    nodes: int
    tensor_parallel: int
    pipeline_parallel: int
    device_groups: tuple[tuple[str, ...], ...]
    """GPUs of each worker; an empty group is a CPU."""
    weight_bytes: int | None
    """Of one device; None if the size of the model is not known, as for the next two."""
    kv_cache_bytes: int | None
    kv_cache_tokens: int | None
    max_requests: int
    """That run at once in one worker."""
    engine_arguments: Mapping[str, object]
    notes: tuple[str, ...]
    reasons: tuple[str, ...]


def check(folder: str | os.PathLike[str], machine: Machine | None = None) -> Checked:
    """Return what becomes of each setting of a folder.

    Raises:
        ConfigurationError: there is no model, or the machine makes no sense.
    """
    given = machine or Machine()
    (report,) = examine([_model(folder)], given, given.hardware())
    rows = (report.redact.each(row) for row in report.rows)
    return Checked(
        model=report.name,
        settings=tuple(Setting(**row) for row in rows),
        notes=tuple(report.notes),
        problems=tuple(report.problems),
        release=report.release,
    )


def plan(folder: str | os.PathLike[str], machine: Machine | None = None) -> Plan:
    """Return what would run for a folder.

    The model's config.json may be read from the Hub or the bucket; no weights are fetched.

    Raises:
        ConfigurationError: the model cannot be run on the machine.
    """
    given = machine or Machine()
    resolved = options_of(_model(folder), given)
    made = plan_model(
        resolved, os.environ, hardware=given.hardware(), reach="config", say=lambda _: None
    )
    return _public(without_secrets(made, os.environ))


def options(engine: str = "") -> tuple[Option, ...]:
    """Return every option under an engine; under LMI's default if none is given.

    Raises:
        ConfigurationError: there is no such engine.
    """
    if engine and engine not in ENGINES:
        raise ConfigurationError(f"engine {engine!r}; accepted: {', '.join(ENGINES)}")
    return tuple(table(engine or default_engine()))


def _model(folder: str | os.PathLike[str]) -> LmiFolder:
    model = model_folder(Path(folder))
    return LmiFolder(model.resolve().name, model)


def _public(made: EnginePlan) -> Plan:
    parallel, memory = made.parallel, made.memory
    return Plan(
        model=made.config.model,
        engine=made.engine,
        mode=parallel.mode,
        workers=parallel.workers,
        nodes=parallel.nodes,
        tensor_parallel=parallel.tensor_parallel_degree,
        pipeline_parallel=parallel.pipeline_parallel_degree,
        device_groups=parallel.device_groups,
        weight_bytes=memory.weights if memory else None,
        kv_cache_bytes=memory.kv_cache if memory else None,
        kv_cache_tokens=memory.num_tokens if memory else None,
        max_requests=made.max_requests,
        engine_arguments={**made.config.arguments, **made.config.passthrough},
        notes=made.notes,
        reasons=made.reasons,
    )
