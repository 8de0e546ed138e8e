"""`lmi-backend join`: be one of the further machines of a model that spans several."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lmi_backend.cli.folders import add_path, model_at
from lmi_backend.cli.planning import Machine, options_of, say_notes
from lmi_backend.errors import ConfigurationError, EngineDeadError, UnavailableError
from lmi_backend.options.spec import implementations
from lmi_backend.plan import EnginePlan, plan_model
from lmi_backend.pool.pool import Pool
from lmi_backend.printable import say
from lmi_backend.supervisor.stop import StopSignals, leave_init_behind

if TYPE_CHECKING:
    import argparse

    from lmi_backend.ipc import messages as msg

_INDEX: Final = "LWS_WORKER_INDEX"
"""Kubernetes' LeaderWorkerSet numbers the pods of a group in it; the leader is 0."""
_POLL_SECONDS: Final = 0.5


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "join",
        help="add a machine to a model that spans several without Ray and MPI",
        description="Run this machine's part of a model that vLLM spreads over several machines by "
        "itself (option.distributed_executor_backend=mp, option.cluster_size), until SIGTERM. The "
        "first machine serves it, in Triton. Each other machine runs this, with the same folder "
        "and the same variables, before or after. When the engine of the first machine stops, "
        "this waits for the next one.",
        examples=("lmi-backend join llama --node-rank 1",),
        takes_flags=True,
        statuses={0: "it was told to stop", 1: "the first machine cannot be reached"},
    )
    add_path(parser, "what the first machine serves, with the same flags")
    what = f"number of this machine, from 1; default: what {_INDEX} says"
    parser.add_argument("--node-rank", type=int, metavar="N", help=what)
    parser.set_defaults(run=_join)


def _join(arguments: argparse.Namespace) -> int:
    leave_init_behind()
    stop = StopSignals()
    with stop.listening():
        return _run(arguments, stop)


def _run(arguments: argparse.Namespace, stop: StopSignals) -> int:
    model = model_at(arguments)
    plan = plan_model(options_of(model, Machine()), os.environ, reach="model", say=say)
    plan = on_node(plan, _rank_of(arguments))
    say_notes(model.name, plan)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="lmi-backend: %(message)s")
    pool = Pool(plan, model.name, lambda name, line: say(f"{name}: {line}"))
    try:
        pool.start(_Listener())
        while not stop.wait(_POLL_SECONDS):
            if pool.health().is_given_up:
                raise UnavailableError(f"{model.name}: {pool.health().problem}")
    finally:
        pool.close()
    return 0


def on_node(plan: EnginePlan, rank: int) -> EnginePlan:
    implementation = implementations().get(plan.engine)
    count = plan.config.arguments.get("nnodes", 1)
    if implementation is None or not implementation.node or count == 1:
        raise ConfigurationError(
            "the model does not span machines by vLLM itself; accepted: "
            "option.distributed_executor_backend=mp with option.cluster_size"
        )
    if not 1 <= rank < count:
        raise ConfigurationError(f"--node-rank {rank}; accepted: 1 to {count - 1}")
    arguments = plan.config.arguments | {"node_rank": rank}
    return replace(plan, config=replace(plan.config, arguments=arguments))


def _rank_of(arguments: argparse.Namespace) -> int:
    text = os.environ.get(_INDEX, "")
    rank: int | None = arguments.node_rank
    if rank is None and not text.isdecimal():
        raise ConfigurationError(f"--node-rank is missing, and {_INDEX} is not set")
    return int(text) if rank is None else rank


class _Listener:
    """Has nothing to hear: requests and answers are the first machine's."""

    def on_messages(self, messages: list[msg.FromWorker]) -> None:
        """Take what a worker says."""

    def on_ready(self) -> None:
        """Learn that it takes requests, which it does not here."""

    def on_death(self, index: int, error: EngineDeadError) -> None:
        """Learn that it died, which the pool says and mends."""
