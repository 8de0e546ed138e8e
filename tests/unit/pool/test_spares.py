"""Which spare is used; tests/contract/test_spares.py has real ones."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import WorkerStartError
from lmi_backend.ipc.survivor import Files
from lmi_backend.plan.engine_plan import EnginePlan, Launch
from lmi_backend.plan.hardware import HostMemory
from lmi_backend.pool import spares
from lmi_backend.pool.slot import Slot, SlotState
from lmi_backend.pool.spares import Spares
from lmi_backend.pool.survivors import files_of
from tests.support.run.waiting import wait_for


class Prepared:
    """A launch without a process."""

    pid = 1

    def __init__(self, files: Files, fails: str) -> None:
        self.files, self._fails = files, fails
        self.is_killed = threading.Event()
        self.loads: bool | None = None
        self.has_exited = False

    def prepare(self, *, loads: bool) -> None:
        self.loads = loads
        if self._fails:
            raise WorkerStartError(self._fails)

    def kill(self) -> None:
        self.is_killed.set()

    def check(self) -> None:
        if self.has_exited:
            raise WorkerStartError("exited")


Make = Callable[..., tuple[Spares, Slot]]


@pytest.fixture
def launched() -> list[Prepared]:
    return []


@pytest.fixture
def make(launched: list[Prepared], tmp_path: Path) -> Make:
    def made(
        fails: str = "", loaded_bytes: int = 0, model: str = str(tmp_path), **arguments: str
    ) -> tuple[Spares, Slot]:
        config = EngineConfig(model=model, arguments=arguments)
        slot = Slot(0, "m/0", is_extra=False, state=SlotState.READY)
        cache = {"HF_HUB_CACHE": str(tmp_path)}
        settings = Launch(
            python="python", environment=cache, spare_workers=1, spare_bytes=loaded_bytes
        )
        plan = EnginePlan(engine="vllm", config=config, launch=settings)

        def launch(*_: object) -> Prepared:
            launched.append(Prepared(files_of(config, cache), fails))
            return launched[-1]

        return Spares(plan, launch), slot  # type: ignore[arg-type]

    (tmp_path / "config.json").write_text("{}")
    return made


@pytest.fixture
def ready(make: Make) -> Make:
    """Make one, and wait until it is there."""

    def made(*given: Any, **named: Any) -> tuple[Spares, Slot]:
        made, slot = make(*given, **named)
        made.replenish(slot)
        wait_for(lambda: slot.has_spare)
        return made, slot

    return made


def test_it_is_not_used_once_the_models_files_have_changed(
    ready: Make, launched: list[Prepared], tmp_path: Path
) -> None:
    made, slot = ready()
    (tmp_path / "config.json").write_text("{ }")
    assert made.take(slot) is None
    assert launched[0].is_killed.is_set()


def test_it_is_not_used_once_the_hub_has_another_revision_of_the_model(
    ready: Make, launched: list[Prepared], tmp_path: Path
) -> None:
    cached = tmp_path / "models--org--model"
    for commit in ("a" * 40, "b" * 40):
        (cached / "snapshots" / commit).mkdir(parents=True)
        (cached / "snapshots" / commit / "config.json").write_text("{}")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    made, slot = ready(loaded_bytes=1, model="org/model")
    assert launched[0].loads
    (cached / "refs" / "main").write_text("b" * 40)
    assert made.take(slot) is None


@pytest.mark.parametrize("option", ["tokenizer", "chat_template"])
def test_it_is_not_used_once_what_reads_prompts_has_changed(
    ready: Make, tmp_path: Path, option: str
) -> None:
    other = tmp_path / "other" / "file.json"
    other.parent.mkdir()
    other.write_text("{}")
    named = other.parent if option == "tokenizer" else other
    made, slot = ready(**{option: str(named)})
    other.write_text("{ }")
    assert made.take(slot) is None


def test_it_loads_no_model_whose_files_are_not_here(ready: Make, launched: list[Prepared]) -> None:
    ready(loaded_bytes=1, model="org/model")
    assert not launched[0].loads


def test_one_that_exits_while_it_waits_is_missed(
    ready: Make, launched: list[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "_WATCH_SECONDS", 0.01)
    made, slot = ready()
    launched[0].has_exited = True
    wait_for(launched[0].is_killed.is_set)
    wait_for(lambda: not slot.has_spare)
    assert made.take(slot) is None


def test_one_that_is_used_is_watched_no_more(
    ready: Make, launched: list[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "_WATCH_SECONDS", 0.01)
    made, slot = ready()
    assert made.take(slot) is launched[0]  # type: ignore[comparison-overlap]
    launched[0].has_exited = True
    wait_for(lambda: not any(each.is_alive() for each in made.keepers))
    assert not launched[0].is_killed.is_set()


def test_after_two_that_failed_none_is_made(make: Make, launched: list[Prepared]) -> None:
    made, slot = make("out of luck")
    for count in (1, 2, 2):
        made.replenish(slot)
        wait_for(lambda: slot.index not in made.spares)
        assert len(launched) == count
        assert all(each.is_killed.is_set() for each in launched)


def test_none_is_made_where_memory_is_short(
    make: Make, launched: list[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "host_memory", lambda: HostMemory(4 << 30, 1 << 30))
    made, slot = make()
    made.replenish(slot)
    wait_for(lambda: slot.index not in made.spares)
    assert not launched


@pytest.mark.parametrize(
    ("loaded_gib", "available_gib", "loads"), [(0, 8, False), (3, 8, True), (5, 8, False)]
)
def test_it_loads_the_model_where_a_second_one_fits(
    ready: Make,
    launched: list[Prepared],
    monkeypatch: pytest.MonkeyPatch,
    loaded_gib: int,
    available_gib: int,
    loads: bool,
) -> None:
    monkeypatch.setattr(spares, "host_memory", lambda: HostMemory(0, available_gib << 30))
    ready(loaded_bytes=loaded_gib << 30)
    assert launched[0].loads is loads


def test_after_one_that_failed_the_next_does_not_load_the_model(
    make: Make, launched: list[Prepared]
) -> None:
    made, slot = make("no memory", loaded_bytes=1)
    for loads in (True, False):
        made.replenish(slot)
        wait_for(lambda: slot.index not in made.spares)
        assert launched[-1].loads is loads


def test_the_end_of_the_pool_is_the_end_of_its_spares(
    ready: Make, launched: list[Prepared]
) -> None:
    made, slot = ready()
    made.close()
    assert launched[0].is_killed.is_set()
    made.replenish(slot)
    assert len(launched) == 1
