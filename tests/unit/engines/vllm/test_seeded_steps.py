"""A seed gives the same draws however many steps a prompt takes; what may end a core is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import cpu, fast_paths, names
from lmi_backend.errors import RequestError


class Generator:
    """Draws one number after the other; it has no offset, as on a CPU."""

    def __init__(self, seed: int) -> None:
        self.seed = self.state = seed

    def draw(self) -> int:
        self.state += 1
        return self.state

    def initial_seed(self) -> int:
        return self.seed

    def manual_seed(self, seed: int) -> None:
        self.state = seed

    def get_state(self) -> int:
        return self.state

    def set_state(self, state: int) -> None:
        self.state = state

    def get_offset(self) -> int:
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, _: int) -> None:
        raise AssertionError("nobody gets here")


class Runner:
    """vLLM's runner, as far as it goes."""

    def __init__(self, *generators: Generator) -> None:
        self.input_batch = SimpleNamespace(generators=dict(enumerate(generators)))

    def step(self, *cut: int) -> list[int]:
        """Draw for each row; return what is drawn for those whose prompt is not cut."""
        drawn = {row: each.draw() for row, each in self.input_batch.generators.items()}
        self._bookkeeping_sync(cut)
        return [value for row, value in drawn.items() if row not in cut]

    def _bookkeeping_sync(self, cut: tuple[int, ...]) -> None:
        for row in cut:
            generator = self.input_batch.generators.get(row)
            if generator is not None:
                generator.set_offset(generator.get_offset() - 4)


class CPUWorker:
    """vLLM's worker, as far as it goes."""

    made: Any = Runner
    """The class of its runner."""

    def init_device(self) -> None:
        self.model_runner = self.made()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the runner of a worker on a CPU, with these generators."""
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setitem(vars(names), "CPUWorker", CPUWorker)

    def make(*generators: Generator) -> Any:
        worker = cpu._subclass.__wrapped__("Worker")()
        worker.init_device()
        worker.model_runner.input_batch.generators = dict(enumerate(generators))
        return worker.model_runner

    return make


def test_a_prompt_of_several_steps_draws_as_one_of_a_single_step(runner: Any) -> None:
    first, second = Generator(10), Generator(20)
    served = runner(first, second)
    assert served.step(0, 1) == []
    assert served.step(1) == [11]
    assert served.step() == [12, 21]
    assert served.input_batch.generators == {0: first, 1: second}
    assert fast_paths.is_on("seeded_steps")


def test_a_request_that_was_put_off_goes_on_where_it_was(runner: Any) -> None:
    put_off = Generator(10)
    served = runner(put_off)
    assert [served.step(), served.step()] == [[11], [12]]
    served.input_batch.generators = {0: Generator(50)}
    assert served.step() == [51]
    served.input_batch.generators = {3: put_off}
    assert [served.step(3), served.step(3), served.step()] == [[], [], [13]]


def test_a_step_without_seeds_is_vllms_own(runner: Any) -> None:
    assert runner().step(0) == []


def test_the_states_of_requests_that_are_gone_are_dropped(
    runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_KEPT", 2)
    forgotten, served = Generator(10), runner()
    served.input_batch.generators = {0: forgotten}
    assert served.step() == [11]
    served.input_batch.generators = {0: Generator(1), 1: Generator(2), 2: Generator(3)}
    assert served.step() == [2, 3, 4]
    served.input_batch.generators = {0: forgotten}
    # It draws anew, and the step goes on.
    assert [served.step(0), served.step()] == [[], [11]]


class _Unreadable:
    @property
    def generators(self) -> Any:
        raise AttributeError("generators")


def test_what_fails_is_let_go(runner: Any) -> None:
    served = runner()
    served.input_batch = _Unreadable()
    served._bookkeeping_sync(())
    assert "AttributeError: generators" in fast_paths.reason_of("seeded_steps")
    stateless: Any = SimpleNamespace(draw=lambda: 1)
    other = runner(stateless)
    assert other.step() == [1]


def test_a_generator_whose_state_cannot_be_kept_is_let_go(runner: Any) -> None:
    stateless: Any = SimpleNamespace(draw=lambda: 1)
    served = runner(stateless)
    assert [served.step(), served.step()] == [[1], [1]]
    assert served.input_batch.generators == {0: stateless}
    assert "get_state" in fast_paths.reason_of("seeded_steps")


def test_a_runner_of_another_kind_stays_and_says_so(
    runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = type("Second", (), {"input_batch": SimpleNamespace()})
    monkeypatch.setattr(CPUWorker, "made", other)
    assert type(runner()) is other
    assert "_bookkeeping_sync is no function" in fast_paths.reason_of("seeded_steps")


@pytest.mark.parametrize("is_cpu", [True, False])
def test_vllm_is_given_the_class_of_workers_on_a_cpu_alone(
    monkeypatch: pytest.MonkeyPatch, is_cpu: bool
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    platform = SimpleNamespace(is_cpu=lambda: is_cpu)
    monkeypatch.setitem(vars(names), "current_platform", platform)
    assert cpu.worker_class() == ("lmi_backend.engines.vllm.cpu.Worker" if is_cpu else "auto")
    fast_paths.leave_out("seeded_steps", "a test does without")
    assert cpu.worker_class() == "auto"


@pytest.mark.parametrize(
    ("sampling", "is_cpu", "is_refused"),
    [
        ({"seed": 1, "temperature": 1.0}, True, True),
        ({"seed": 1, "temperature": 0.0}, True, False),
        ({"seed": None, "temperature": 1.0}, True, False),
        ({"seed": 1, "temperature": 1.0}, False, False),
    ],
)
def test_without_it_a_seed_is_refused_where_it_may_end_the_core(
    monkeypatch: pytest.MonkeyPatch,
    sampling: dict[str, Any],
    is_cpu: bool,
    is_refused: bool,
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    platform = SimpleNamespace(is_cpu=lambda: is_cpu)
    monkeypatch.setitem(vars(names), "current_platform", platform)
    params = SimpleNamespace(**sampling)
    cpu.check_seed(params)
    fast_paths.leave_out("seeded_steps", "a test does without")
    if is_refused:
        with pytest.raises(RequestError, match="seed may end the engine of all"):
            cpu.check_seed(params)
    else:
        cpu.check_seed(params)
