"""What the page asks of the models, with an endpoint that is real and a model that is not."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from lmi_backend.endpoint.server import Endpoint
from lmi_backend.endpoint.state import LogLine, StateView
from lmi_backend.frontend.models import Models
from lmi_backend.frontend.operators import state
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.pool.rank_group import WorkerStats
from tests.support.doubles.endpoints import die, open_endpoint, short_folder
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.looking import NotedAnswer, looking
from tests.support.run.waiting import until


class Workers(IdleWorkers):
    """Two: one runs, one has died of a secret."""

    def stats(self) -> list[Any]:
        paths = (("waits", "", ""), ("media", "no hidden name", "no URLs"))
        busy = EngineStats(running=3, kv_cache_usage=0.5, fast_paths=paths)
        return [
            WorkerStats(busy, assigned=9, deaths=0, is_ready=True, is_adopted=True),
            WorkerStats(EngineStats(), assigned=1, deaths=2, is_ready=False, problem="it: hidden"),
        ]


def log(number: int) -> list[LogLine]:
    return [(each, 1.5, "INFO", f"line {each}") for each in (1, 2, 3) if each > number]


folder = pytest.fixture(short_folder)


@pytest.fixture
def endpoint(folder: Path) -> Iterator[Endpoint]:
    state = {
        "plan": {"engine": "echo", "reasons": ("because",)},
        "redact": lambda text: text.replace("hidden", "***"),
        "log": log,
    }
    adapters = {"fine": "/adapters/fine"}
    one = open_endpoint("some model", Workers(), None, adapters, state, served_names=("lmi",))
    yield one
    one.close()


async def ask(
    folder: Path, query: str, configured: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the state of the one model, as a client gets it."""
    exchange = NotedAnswer(query)
    async with looking(Models(folder, configured=configured)) as models:
        await until(models.all)
        await state.show(models, exchange)  # type: ignore[arg-type]
    assert exchange.headers["cache-control"] == "no-store"
    (model,) = exchange.answer["models"]
    found: dict[str, Any] = model
    return found


async def test_it_has_what_people_and_monitors_look_at(endpoint: Endpoint, folder: Path) -> None:
    state = await ask(folder, "")
    assert (state["model"], state["engine"], state["health"]["is_ready"]) == (
        "some model",
        "vllm",
        True,
    )
    assert state["plan"] == {"engine": "echo", "reasons": ["because"]}
    assert state["adapters"] == {"fine": "/adapters/fine"}
    assert [worker["deaths"] for worker in state["workers"]] == [0, 2]
    assert [worker["is_adopted"] for worker in state["workers"]] == [True, False]
    assert state["workers"][0]["stats"]["running"] == 3
    assert set(state["workers"][0]["stats"]) == set(EngineStats.__struct_fields__)
    assert state["workers"][0]["stats"]["fast_paths"] == [
        {"name": "waits", "state": "private", "reason": "", "cost": ""},
        {"name": "media", "state": "public", "reason": "no *** name", "cost": "no URLs"},
    ]
    assert state["workers"][1]["problem"] == "it: ***"
    assert state["stats"]["first_seconds"]["count"] == 0
    assert state["stats"]["first_seconds"]["buckets"]["+Inf"] == 0
    assert "log" not in state


async def test_a_name_that_a_model_shares_is_not_shown(endpoint: Endpoint, folder: Path) -> None:
    assert (await ask(folder, ""))["served_names"] == ["lmi"]
    others = {"another": ("lmi",)}
    assert (await ask(folder, "", others))["served_names"] == []


async def test_the_log_goes_on_where_it_was_read(endpoint: Endpoint, folder: Path) -> None:
    state = await ask(folder, "log_after.some+model=2")
    assert state["log"] == [[3, 1.5, "INFO", "line 3"]]


async def test_a_model_that_does_not_answer_is_named(
    endpoint: Endpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmi_backend.frontend.connection.ASK_SECONDS", 0.1)
    monkeypatch.setattr(StateView, "values", lambda *_, **__: (_ for _ in ()).throw(OSError))
    assert (await ask(folder, ""))["error"]


async def test_a_model_that_goes_as_it_is_asked_is_there_once(
    endpoint: Endpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(*_: Any, **__: Any) -> dict[str, Any]:
        die(endpoint)
        return {}

    monkeypatch.setattr(StateView, "values", go)
    assert (await ask(folder, ""))["error"]
