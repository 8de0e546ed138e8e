"""What vLLM needs on a CPU alone.

Its processes load this module by the plugins of `starting`, and find classes in it by their names.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.errors import ConfigurationError, RequestError

if TYPE_CHECKING:
    pass

# How vLLM's processes wait for each other: those that compute on the CPU sleep now and then.
#
# A core and its workers poll in a loop whether the other has written, and yield each time. On Linux
# 6.18 other processes of a CPU whose processes yield so fast may wait for seconds: the tokens of a
# stream arrive only when it is finished. A sleep after some yields cures that (benchmarks/README.md
# has what it costs). An idle process polls for another second, and takes a core from the busy ones.
# Here it soon waits for the message that vLLM sends with each write. On a GPU a sleep of 50 µs
# would be more of a step, so vLLM's way stays.

_YIELDS: Final = 64
"""From one sleep to the next: a fraction of a millisecond."""
_ASKING_SECONDS: Final = 0.01
"""After the last message: more than the pause between two steps, less than between two requests."""
_num_yields = itertools.count(1)


def install_waits() -> None:
    """Have this process wait so, if its model is on the CPU."""
    note_other_processes()
    fast_paths.probe(
        "waits", "the calls by which vLLM's processes wait for each other", _install_waits
    )


def _install_waits() -> None:
    if not names.current_platform.is_cpu():
        return
    shm_broadcast = names.shm_broadcast
    if not callable(getattr(shm_broadcast, "sched_yield", None)):
        raise TypeError("sched_yield is no function")
    # Older releases have none.
    if condition := getattr(shm_broadcast, "SpinCondition", None):
        inspect.signature(condition).bind_partial(busy_loop_s=_ASKING_SECONDS)
        shm_broadcast.SpinCondition = functools.partial(_condition, condition)
    shm_broadcast.sched_yield = _give_way


def _condition(condition: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a condition; vLLM's own once this is off, even before this process's fork."""
    chosen = {"busy_loop_s": _ASKING_SECONDS} if fast_paths.is_on("waits") else {}
    return condition(*args, **chosen, **kwargs)


def _give_way(*_: Any, **__: Any) -> None:
    """Yield, or sleep; arguments of other releases change nothing."""
    if not fast_paths.is_on("waits") or next(_num_yields) % _YIELDS:
        os.sched_yield()
    else:
        time.sleep(0)


# A core that computes on the CPU in its own process, as a core with a single GPU does.
#
# On a CPU vLLM gives each core a worker process: the threads of OpenMP are set by variables of a
# process that has just been started (`CpuPlatform.check_and_update_config`). The two poll each
# other in a loop for each step. A core of one rank is itself such a process: with the variables of
# its worker it computes. That saves the waiting, a start of Python, half a GiB of memory and half
# of a core (benchmarks/README.md has the figures).

_VARIABLE: Final = "LMI_BACKEND_SINGLE_PROCESS"
"""In a core that is to compute by itself: the process that has started it."""


def compute_alone(config: Any, *, chosen: Any) -> AbstractContextManager[object]:
    """Let the core of a VllmConfig compute by itself, where it can.

    Args:
        config: changed in place.
        chosen: the executor that the user named; it stays.

    Returns:
        In which the core's process is to be started; it has been entered.
    """
    if not fast_paths.is_on("single_process") or chosen is not None:
        return nullcontext()
    parallel = config.parallel_config
    before = parallel.distributed_executor_backend
    try:
        with fast_paths.watched(
            "single_process", "an executor, and the variables of a worker on a CPU"
        ):
            if not names.current_platform.is_cpu() or parallel.world_size_across_dp > 1:
                return nullcontext()
            # Before 0.20, which has the manager, a worker bound its threads by itself.
            variables = names.OMPProcessManager(config).configure_omp_envs(0, 0)
            # A class, and no function that makes its objects.
            issubclass(names.UniProcExecutor, object)
            # The name "uni" would be changed to "mp" again, in the core too.
            parallel.distributed_executor_backend = names.UniProcExecutor
            stack = ExitStack()
            stack.enter_context(variables)
            os.environ[_VARIABLE] = str(os.getpid())
            stack.callback(os.environ.pop, _VARIABLE, None)
    except Exception:  # noqa: BLE001  it was warned of
        if parallel.distributed_executor_backend is not before:
            parallel.distributed_executor_backend = before
        return nullcontext()
    return stack


def note_other_processes() -> None:
    """Say that a core has another process compute, if this is one of them and it was not to."""
    import multiprocessing  # noqa: PLC0415  it makes a module of the program's

    parent, starter = multiprocessing.parent_process(), os.environ.get(_VARIABLE)
    if parent is not None and starter is not None and str(parent.pid) != starter:
        fast_paths.turn_off(
            "single_process",
            "a core that starts no process",
            f"process {parent.pid} has started one",
        )


# Requests of the model itself and of its adapters in one step, where LoRA runs on a CPU.
#
# vLLM gives a token without an adapter the slot -1. On a CPU that picks the weights of the last
# slot, so the model itself answers as an adapter does. Here such rows stay as they are.
#
# It also computes the logits of one prompt's tokens. It looks up their adapters as if they were the
# last tokens of all requests of the step. With several requests the numbers differ, and its engine
# crashes with all its requests. Here the adapters are those of the prompt's own tokens.
#
# 0.22 and 0.23 pin the memory of the adapters' indices, for which torch wants a GPU: no engine with
# LoRA starts on a CPU. Here nothing is pinned.

_PINS: Final = "pin_memory"


def install_lora_rows() -> None:
    """Have this process apply LoRA so, if its model is on the CPU."""
    fast_paths.probe("lora_rows", "a class that applies LoRA on a CPU", _install_lora_rows)


def _install_lora_rows() -> None:
    if not names.current_platform.is_cpu():
        return
    _subclass("PunicaWrapper")
    compat.subclass(names.current_platform, _Platform)
    if names.async_tensor_h2d is not None:
        _pin_nothing(names.async_tensor_h2d)


class _Platform:
    """What a CpuPlatform does besides vLLM's own work."""

    @classmethod
    def get_punica_wrapper(cls) -> str:
        """Return the name of the class that applies LoRA."""
        return f"{__name__}.PunicaWrapper"


class _Rows:
    """What a PunicaWrapperCPU does besides vLLM's own work."""

    token_lora_indices: Any
    _of_prompt: Any = None
    """The adapters of the tokens whose logits are computed, where they are one prompt's."""

    @property
    def sampler_indices(self) -> Any:
        """The adapters of the tokens whose logits are computed."""
        theirs: Any = super()
        return theirs.sampler_indices if self._of_prompt is None else self._of_prompt

    # Layers call it by add_lora_linear, or alone where they are sharded.
    def add_expand(self, y: Any, *given: Any, **named: Any) -> Any:
        """Add the second product of a layer to `y`."""
        with _others_kept(y, self.token_lora_indices):
            return super().add_expand(y, *given, **named)  # type: ignore[misc]

    def add_lora_embedding(self, y: Any, *given: Any, **named: Any) -> Any:
        with _others_kept(y, self.token_lora_indices):
            return super().add_lora_embedding(y, *given, **named)  # type: ignore[misc]

    def add_lora_logits(self, y: Any, x: Any, *given: Any, **named: Any) -> Any:
        try:
            self._of_prompt = _rows(self, x)
        except Exception as error:  # noqa: BLE001  the step of all requests goes on without
            came = f"{type(error).__name__}: {error}"
            fast_paths.turn_off("lora_rows", "adapters of tokens that can be looked up", came)
        try:
            with _others_kept(y, self.sampler_indices):
                return super().add_lora_logits(y, x, *given, **named)  # type: ignore[misc]
        finally:
            self._of_prompt = None


@contextmanager
def _others_kept(y: Any, slots: Any) -> Iterator[None]:
    """Keep the rows of tokens without an adapter, whose slot is below 0."""
    rows: Any = y.view(-1, y.shape[-1]) if hasattr(y, "view") else ()
    if len(rows) != len(slots):
        yield
        return
    others = (slots < 0).nonzero().flatten()
    before = rows[others].clone()
    yield
    rows[others] = before


def _pin_nothing(function: Any) -> None:
    """Have a function pin no memory, if it does where its caller does not say."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.name == _PINS and each.default is True for each in parameters):
        function.__defaults__ = tuple(
            each.default if each.name != _PINS else False
            for each in parameters
            if each.kind is not each.KEYWORD_ONLY and each.default is not each.empty
        )


def _rows(wrapper: Any, states: Any) -> Any:
    """Return the adapters of the tokens of some hidden states; None if they are the last tokens.

    What is a part of the states of a step is one prompt's: the last tokens are picked, so copied.
    """
    if states.dim() < 2 or states.untyped_storage().nbytes() <= states.nbytes:
        return None
    first = states.storage_offset() // states.stride(0)
    rows = wrapper.token_lora_indices[first : first + states.shape[0]]
    return rows if len(rows) == len(states) else None


# Seeded requests whose prompt is computed in several steps, on a CPU.
#
# Each step draws a token for each request. Where the prompt is not whole yet, vLLM drops the token,
# and has the request's generator of random numbers go back by a draw. It does so by an offset,
# which generators on a CPU do not have: the core exits, with all its requests. Here the generator
# gets the state that it had before the draw, so a seed gives one text in however many steps.
#
# Off, such requests are refused: any prompt may be cut where others are computed with it.

SEEDED_STEPS: Final = "seeded_steps"
_EXPECTED: Final = "a model runner with its requests' generators"
_GREEDY: Final = 1e-5
"""Temperature below which vLLM draws nothing by a seed."""
_KEPT: Final = 1024
"""Generators whose state is kept: of requests that run, and of those that vLLM has put off."""


def worker_class() -> str:
    """Return the name of the class of workers, as vLLM's argument `worker_cls` takes it."""
    is_on = fast_paths.is_on(SEEDED_STEPS) and names.current_platform.is_cpu()
    return f"{__name__}.Worker" if is_on else "auto"


class _Worker:
    """What a CPUWorker does besides vLLM's own work."""

    model_runner: Any

    def init_device(self, *given: Any, **named: Any) -> None:
        """Make the model's runner."""
        super().init_device(*given, **named)  # type: ignore[misc]
        fast_paths.probe(SEEDED_STEPS, _EXPECTED, self._attach)

    def _attach(self) -> None:
        if not callable(getattr(self.model_runner, "_bookkeeping_sync", None)):
            raise TypeError("_bookkeeping_sync is no function")
        self.model_runner.seeded_states = _States()
        compat.subclass(self.model_runner, _Runner)


class _Runner:
    """What a model runner does besides vLLM's own work."""

    input_batch: Any
    seeded_states: _States

    def _bookkeeping_sync(self, *given: Any, **named: Any) -> Any:
        own, drawn = super()._bookkeeping_sync, {}  # type: ignore[misc]
        try:
            if fast_paths.is_on(SEEDED_STEPS) and (drawn := self.input_batch.generators):
                self.input_batch.generators = self.seeded_states.stand_ins(drawn)
        except Exception as error:  # noqa: BLE001  vLLM continues as it would
            _turn_off(error)
            drawn = {}
        if not drawn:
            return own(*given, **named)
        try:
            found = own(*given, **named)
        finally:
            self.input_batch.generators = drawn
        try:
            self.seeded_states.keep(drawn)
        except Exception as error:  # noqa: BLE001  as above
            _turn_off(error)
        return found


def _turn_off(error: Exception) -> None:
    fast_paths.turn_off(SEEDED_STEPS, _EXPECTED, f"{type(error).__name__}: {error}")


class _States:
    """The states of generators after their last draw that counts."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
        """By a generator's identity: the generator, so that it stays its own, and its state."""

    def stand_ins(self, generators: Mapping[int, Any]) -> dict[int, _StandIn]:
        """Return what stands in for generators that have drawn in this step."""
        return {row: _StandIn(each, self._before(each)) for row, each in generators.items()}

    def _before(self, generator: Any) -> Any:
        return self._kept.get(id(generator), (generator, None))[1]

    def keep(self, generators: Mapping[int, Any]) -> None:
        """Keep the states of the generators of a step."""
        for each in generators.values():
            self._kept[id(each)] = (each, each.get_state())
            self._kept.move_to_end(id(each))
        while len(self._kept) > max(_KEPT, len(generators)):
            self._kept.popitem(last=False)


class _StandIn:
    """A generator on a CPU that goes back by a draw when it is told an offset.

    Args:
        generator: whose it is.
        state: before the draw; None if it was the first one.
    """

    def __init__(self, generator: Any, state: Any) -> None:
        self._generator, self._state = generator, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def get_offset(self) -> int:
        return 0

    def set_offset(self, _: int) -> None:
        if self._state is None:
            self._generator.manual_seed(self._generator.initial_seed())
        else:
            self._generator.set_state(self._state)


def check_seed(params: Any) -> None:
    """Refuse a request that may end the core.

    Args:
        params: its SamplingParams.

    Raises:
        RequestError: it may.
    """
    if is_seed_refused(params):
        raise RequestError(
            "may end the engine of all: this vLLM on a CPU cannot compute a prompt in several "
            f"steps for a sampled request that has one ({fast_paths.OPTION} or the log says why)",
            field="seed",
            accepted="none, or temperature 0",
        )


def is_seed_refused(params: Any) -> bool:
    """Tell whether a request may end the core."""
    if getattr(params, "seed", None) is None or params.temperature < _GREEDY:
        return False
    return bool(names.current_platform.is_cpu() and fast_paths.reason_of(SEEDED_STEPS))


# vLLM makes the name of the shared memory of ranks on a CPU of an address that they lack.


def name_shared_memory(name: str) -> None:
    """Let ranks on a CPU share memory by this name; those on GPUs do not use it."""
    if not names.current_platform.is_cpu():
        return
    try:
        rename(names.cpu_communicator._CPUSHMDistributed, name)
    except (AttributeError, ImportError) as error:
        # Two groups on one machine could read each other's memory.
        raise ConfigurationError(
            f"vLLM {names.vllm_version} cannot be served in MPI mode on a CPU: the shared memory "
            f"of its ranks cannot be named ({error}); leave out option.mpi_mode and engine=MPI"
        ) from error


def rename(cls: Any, name: str) -> None:
    """Have vLLM's class put a name before those it makes."""

    def unique(group: str) -> str:
        # The address has slashes, which a name of shared memory must not.
        return f"{name}-{group}".replace("/", "")

    if hasattr(cls, "make_group_name"):  # 0.17
        made = cls.make_group_name
        cls.make_group_name = staticmethod(lambda communicator: unique(made(communicator)))
        return
    join = cls._init_cpu_shm

    @wraps(join)
    def join_renamed(self: Any) -> Any:
        self.group_name = unique(self.group_name)
        return join(self)

    cls._init_cpu_shm = join_renamed


@cache
def _subclass(name: str) -> Any:
    if name == "Worker":
        return compat.subclass_of(names.CPUWorker, _Worker)
    return compat.subclass_of(names.PunicaWrapperCPU, _Rows)


def __getattr__(name: str) -> Any:
    """Return a class that vLLM finds by its name in this module."""
    if name not in ("PunicaWrapper", "Worker"):
        raise AttributeError(name)
    return _subclass(name)
