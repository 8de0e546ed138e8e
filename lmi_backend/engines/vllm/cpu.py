"""What vLLM needs on a CPU alone: a core that computes by itself, and its class of workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.ipc.environment import GROUP_VARIABLE


def compute_alone(config: Any, *, chosen: Any) -> AbstractContextManager[object]:
    """Let the core of a VllmConfig compute by itself, as one with a single GPU does.

    On a CPU vLLM gives each core a worker process: the threads of OpenMP are set by variables of a
    new process. The two poll each other in a loop for each step. A core of one rank is such a
    process itself, and gets the variables of its worker. That saves the waiting, half a GiB and
    half of a core (benchmarks/README.md has the figures).

    Args:
        config: changed in place.
        chosen: the executor that the user named; it stays.
    """
    parallel = config.parallel_config
    variables: list[AbstractContextManager[object]] = []
    if chosen is not None or not names.current_platform.is_cpu():
        return nullcontext()
    if parallel.world_size_across_dp > 1 or not fast_paths.probe(
        "single_process",
        "the variables of a worker on a CPU",
        # Before 0.20, which has the manager, a worker bound its threads by itself.
        lambda: variables.append(names.OMPProcessManager(config).configure_omp_envs(0, 0)),
    ):
        return nullcontext()
    # The name "uni" would be changed to "mp" again, in the core too.
    compat.changed(parallel, distributed_executor_backend=names.UniProcExecutor)
    return variables[0]


def worker_class() -> str:
    """Return the name of the class of workers, as vLLM's argument `worker_cls` takes it."""
    return f"{__name__}.Worker" if names.current_platform.is_cpu() else "auto"


class _Worker:
    """What a CPUWorker does besides vLLM's own work."""

    vllm_config: Any
    model_runner: Any
    distributed_init_method: str

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        if self.distributed_init_method == "env://":
            # The ranks of a group share memory that is called by what is behind the last colon. Two
            # groups on one machine would read each other's; two machines share none.
            own = f"{os.environ[GROUP_VARIABLE]}-{socket.gethostname()}"
            self.distributed_init_method += f"?group=:{own}"

    def init_device(self, *given: Any, **named: Any) -> None:
        super().init_device(*given, **named)  # type: ignore[misc]
        if self.vllm_config.lora_config is not None:
            compat.subclass(names.current_platform, _Platform)
        if all(hasattr(self.model_runner, name) for name in ("_update_states", _BOOKKEEPING)):
            compat.subclass(self.model_runner, _Runner)


_BOOKKEEPING = "_bookkeeping_sync"


class _Runner:
    """What a model runner does besides vLLM's own work.

    Each step draws a token for each request. Where the prompt is not whole yet, vLLM drops the
    token, and has the request's generator of random numbers go back by an offset. Generators on a
    CPU have none: the core would exit, with all its requests. Here they get the state that they had
    before the draw, so a seed gives one text in however many steps.
    """

    input_batch: Any
    _states: Mapping[int, Any] = {}

    def _update_states(self, *given: Any, **named: Any) -> Any:
        made = super()._update_states(*given, **named)  # type: ignore[misc]
        generators = self.input_batch.generators.items()
        self._states = {row: each.get_state() for row, each in generators}
        return made

    def _bookkeeping_sync(self, *given: Any, **named: Any) -> Any:
        generators = self.input_batch.generators
        stand_ins = {row: _StandIn(each, self._states[row]) for row, each in generators.items()}
        with patch.dict(generators, stand_ins):
            return super()._bookkeeping_sync(*given, **named)  # type: ignore[misc]


class _StandIn:
    """A generator on a CPU that goes back by a draw when it is told an offset."""

    def __init__(self, generator: Any, state: Any) -> None:
        self._generator, self._state = generator, state

    def get_offset(self) -> int:
        return 0

    def set_offset(self, _: int) -> None:
        self._generator.set_state(self._state)


class _Platform:
    """What a CpuPlatform does besides vLLM's own work."""

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return f"{__name__}.PunicaWrapper"


class _Rows:
    """What a PunicaWrapperCPU does besides vLLM's own work.

    vLLM gives a token without an adapter the slot -1. On a CPU that picks the weights of the last
    slot, so the model itself would answer as an adapter does. Here such rows are zero.

    It also computes the logits of one prompt's tokens. It looks up their adapters as if they were
    the last tokens of all requests of the step. With several requests the numbers would differ, and
    the engine exit with all its requests. Here the adapters are those of the prompt's own tokens.
    """

    token_lora_indices: Any
    _of_prompt: Any = None
    """The adapters of the tokens whose logits are computed, where they are one prompt's."""

    @property
    def sampler_indices(self) -> Any:
        theirs: Any = super()
        return theirs.sampler_indices if self._of_prompt is None else self._of_prompt

    # Layers call it by add_lora_linear, or alone where they are sharded.
    def add_shrink(self, y: Any, x: Any, *given: Any, **named: Any) -> Any:
        x = _with_adapter(x, self.token_lora_indices)
        return super().add_shrink(y, x, *given, **named)  # type: ignore[misc]

    def add_lora_embedding(self, y: Any, x: Any, *given: Any, **named: Any) -> Any:
        x = _with_adapter(x, self.token_lora_indices)
        return super().add_lora_embedding(y, x, *given, **named)  # type: ignore[misc]

    def add_lora_logits(self, y: Any, x: Any, *given: Any, **named: Any) -> Any:
        self._of_prompt = _rows(self.token_lora_indices, x)
        try:
            x = _with_adapter(x, self.sampler_indices)
            return super().add_lora_logits(y, x, *given, **named)  # type: ignore[misc]
        finally:
            self._of_prompt = None


def _with_adapter(x: Any, slots: Any) -> Any:
    """Return states in which the rows of tokens without an adapter are zero."""
    rows = x.view(-1, x.shape[-1])
    return rows.masked_fill((slots < 0)[:, None], 0) if len(rows) == len(slots) else rows


def _rows(slots: Any, states: Any) -> Any:
    """Return the adapters of the tokens of some hidden states; None if they are the last tokens.

    What is a part of the states of a step is one prompt's: the last tokens are picked, so copied.
    """
    if states.dim() < 2 or states.untyped_storage().nbytes() <= states.nbytes:
        return None
    first = states.storage_offset() // states.stride(0)
    rows = slots[first : first + states.shape[0]]
    return rows if len(rows) == len(states) else None


@cache
def __getattr__(name: str) -> Any:
    """Return a class that vLLM finds by its name in this module."""
    if name == "Worker":
        return compat.subclass_of(names.CPUWorker, _Worker)
    if name == "PunicaWrapper":
        return compat.subclass_of(names.PunicaWrapperCPU, _Rows)
    raise AttributeError(name)
