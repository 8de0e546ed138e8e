"""What ends a server, and what does not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.errors import ConfigurationError, UnavailableError
from lmi_backend.supervisor import supervisor as module
from lmi_backend.supervisor.server import Problem
from lmi_backend.supervisor.supervisor import Supervisor


@dataclass
class Signals:
    """Those of a user, without any."""

    count: int = 0
    waits: list[float] = field(default_factory=list)

    @property
    def is_requested(self) -> bool:
        return self.count > 0

    @property
    def is_urgent(self) -> bool:
        return self.count > 1

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self.is_requested


SETUP: Any = SimpleNamespace(
    names=("model",), required=frozenset(), allocations=(), client=lambda _: SimpleNamespace()
)


class Bench:
    """Runs a supervisor over servers each of which does what is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signals = Signals()
        self.lives: Iterator[Callable[[], Any]] = iter(())
        self.drained: list[bool] = []
        self.stopped_gently: list[bool] = []
        self.failed: list[str] = []
        self.when_draining: Callable[[], None] = lambda: None
        bench = self

        class Server:
            has_crashed = False
            client = SimpleNamespace(states=lambda: dict.fromkeys(SETUP.names, ("READY", "")))

            def __init__(self, _: Any) -> None:
                self._live = next(bench.lives)
                self.failed: dict[str, str] = {}

            def widen_buffers(self) -> None:
                pass

            def wait_for_problem(self, _: Any, *, reloads: Any) -> Any:
                return self._live()

            def drain(self, _: float, is_over: Callable[[], bool], *, unloads: bool) -> int:
                bench.when_draining()
                bench.drained.append(is_over())
                return 0

            def stop(self, _: Any, *, gently: bool) -> int:
                bench.stopped_gently.append(gently)
                return 0

        self.server = Server
        monkeypatch.setattr(module, "RunningServer", Server)

    def run(self, *lives: Callable[[], Any], setup: Any = SETUP) -> int:
        self.lives = iter(lives)
        signals: Any = self.signals
        supervisor = Supervisor(setup, signals, drain_seconds=1, exits_when_given_up=False)
        return supervisor.run(self.failed.extend, lambda: None)

    def stop(self) -> None:
        self.signals.count += 1

    def has(self, states: Callable[[], Any]) -> None:
        """Have each server say this of its models."""
        self.server.client = SimpleNamespace(states=states)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def raising(error: Exception) -> Callable[[], Any]:
    def live() -> None:
        raise error

    return live


def test_what_runs_may_end_although_another_model_is_still_loaded(bench: Bench) -> None:
    bench.has(bench.stop)
    assert bench.run(bench.stop) == 0
    assert bench.drained == [False]


def test_a_stub_that_got_no_processor_costs_a_start(bench: Bench) -> None:
    starved = {"model": ("UNAVAILABLE", "Stub process 'model_0' is not healthy.")}
    states = iter([starved] * 5 + [{"model": ("READY", "")}])
    bench.has(lambda: next(states))
    with pytest.raises(UnavailableError, match="is not healthy"):
        bench.run(*[bench.stop] * 3)
    assert bench.run(*[bench.stop] * 3) == 0
    assert bench.stopped_gently == [False, False, True] * 2


def test_a_fault_of_our_own_is_logged_and_costs_a_restart(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run(raising(RuntimeError("a bug")), raising(OSError("another")), bench.stop) == 0
    errors = capsys.readouterr().err
    assert errors.count("Traceback") == 2
    assert "lmi-backend failed: RuntimeError('a bug'): the server is started again in 0 s" in errors
    assert "lmi-backend failed: OSError('another'): the server is started again in 1 s" in errors


@pytest.mark.parametrize("error", [ConfigurationError("no model"), UnavailableError("gone")])
def test_what_the_user_has_to_mend_ends_it_with_the_reason(bench: Bench, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        bench.run(raising(error))


def test_nobody_is_told_of_ctrl_c_who_did_not_press_it(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run(lambda: Problem("it crashed"), bench.stop) == 0
    errors = capsys.readouterr().err
    assert "it crashed: waiting for running requests\n" in errors
    assert errors.count("Ctrl-C again") == errors.count("stopping: waiting") == 1
    assert bench.stopped_gently == [False, True]


def test_a_second_signal_during_the_drain_stops_at_once(bench: Bench) -> None:
    bench.run(bench.stop)
    assert bench.drained == [False]
    bench.signals.count = 0
    bench.when_draining = bench.stop
    bench.run(bench.stop)
    assert bench.drained == [False, True]


def test_a_second_signal_before_the_drain_is_not_lost(bench: Bench) -> None:
    def two() -> None:
        bench.signals.count += 2

    bench.run(two)
    assert bench.drained == [True]


def test_a_stop_before_the_models_are_loaded_says_so(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.has(lambda: None)
    bench.stop()
    assert bench.run(bench.stop) == 0
    assert "stopping: model did not finish loading\n" in capsys.readouterr().err
    assert bench.stopped_gently == [True]


@pytest.mark.parametrize("required", [(), ("bad",)])
def test_a_model_that_cannot_be_loaded_ends_the_start_if_it_is_required(
    bench: Bench, required: tuple[str, ...]
) -> None:
    states = {"good": ("READY", ""), "bad": ("UNAVAILABLE", "no memory")}
    bench.has(lambda: states)
    of_start = {"names": tuple(states), "required": frozenset(required)}
    setup = SimpleNamespace(**vars(SETUP) | of_start)
    if required:
        with pytest.raises(UnavailableError, match="model bad does not start"):
            bench.run(bench.stop, setup=setup)
    else:
        assert bench.run(bench.stop, setup=setup) == 0
    assert bench.failed == ([] if required else ["bad"])
