"""Seeded requests whose prompt is computed in several steps, on a CPU.

Each step draws a token for each request. Where the prompt is not whole yet, vLLM drops the token,
and has the request's generator of random numbers go back by a draw. It does so by an offset, which
generators on a CPU do not have: the core exits, with all its requests. Here the generator gets the
state that it had before the draw, so a seed gives one text in however many steps.

Off, such requests are refused: any prompt may be cut where others are computed with it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.errors import RequestError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

NAME: Final = "seeded_steps"
_RUNNER: Final = "vllm.v1.worker.gpu_model_runner"
"""vLLM's runner on a CPU is a subclass."""
_EXPECTED: Final = "a model runner with its requests' generators"
_GREEDY: Final = 1e-5
"""Temperature below which vLLM draws nothing by a seed."""
_KEPT: Final = 1024
"""Generators whose state is kept: of requests that run, and of those that vLLM has put off."""


def install() -> None:
    """Have this process go back so, if it computes on a CPU.

    The runner's module is waited for: vLLM prepares torch before it imports it.
    """
    if _RUNNER in sys.modules:
        _replace(sys.modules[_RUNNER])
    else:
        sys.meta_path.insert(0, _Waiting(_RUNNER, _replace))


class _Waiting(MetaPathFinder):
    """Does something with a module as soon as it has been imported."""

    def __init__(self, name: str, does: Callable[[ModuleType], None]) -> None:
        self._name, self._does = name, does

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec and spec.loader
        if loader is not None:
            own = loader.exec_module

            def execute(module: ModuleType) -> None:
                own(module)
                self._does(module)

            loader.exec_module = execute
        return spec


def _replace(module: ModuleType) -> None:
    def replace() -> None:
        if names.current_platform.is_cpu():
            _replace_in(vars(module)["GPUModelRunner"])

    fast_paths.probe(NAME, _EXPECTED, replace)


def _replace_in(runner: Any) -> None:
    own, states = runner._bookkeeping_sync, _States()
    if not callable(own):
        raise TypeError("_bookkeeping_sync is no function")

    def turn_off(error: Exception) -> None:
        runner._bookkeeping_sync = own
        fast_paths.turn_off(NAME, _EXPECTED, f"{type(error).__name__}: {error}")

    def keep(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            batch = self.input_batch
            drawn = batch.generators
            if drawn:
                batch.generators = states.stand_ins(drawn)
        except Exception as error:  # noqa: BLE001  vLLM continues as it would
            turn_off(error)
            return own(self, *args, **kwargs)
        if not drawn:
            return own(self, *args, **kwargs)
        try:
            found = own(self, *args, **kwargs)
        finally:
            batch.generators = drawn
        try:
            states.keep(drawn)
        except Exception as error:  # noqa: BLE001  as above
            turn_off(error)
        return found

    runner._bookkeeping_sync = keep


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


def check(params: Any) -> None:
    """Refuse a request that may end the core.

    Args:
        params: its SamplingParams.

    Raises:
        RequestError: it may.
    """
    if is_refused(params):
        raise RequestError(
            "may end the engine of all: this vLLM on a CPU cannot compute a prompt in several "
            f"steps for a sampled request that has one ({fast_paths.OPTION} or the log says why)",
            field="seed",
            accepted="none, or temperature 0",
        )


def is_refused(params: Any) -> bool:
    """Tell whether a request may end the core."""
    if getattr(params, "seed", None) is None or params.temperature < _GREEDY:
        return False
    return bool(names.current_platform.is_cpu() and fast_paths.states()[NAME])
