"""Requests for models that are down: which wait, for how long, and which are refused at once."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.endpoint.address import endpoint_folder
from lmi_backend.endpoint.loading import Loading
from lmi_backend.endpoint.server import Endpoint as EndpointServer
from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.errors import LoadingError, RequestError, UnavailableError, UnknownModelError
from lmi_backend.files import private_folder
from lmi_backend.frontend import models as module
from lmi_backend.frontend.http.bodies import ClientGoneError
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.http.protocol import CLIENT
from lmi_backend.frontend.listing import Listing
from lmi_backend.frontend.models import Models, Starting, find_models
from lmi_backend.frontend.operators import state
from lmi_backend.frontend.operators.health import HealthChecks
from lmi_backend.generation import GenerateRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import encode
from tests.support.doubles.endpoints import die, open_endpoint, short_folder
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.looking import NotedAnswer, looking
from tests.support.run.waiting import HANG_SECONDS, until


class Client:
    """A client's connection."""

    is_gone = False
    on_gone: Any = None

    def leave(self) -> None:
        self.is_gone = True
        self.on_gone()


class Endpoint:
    """A model that only greets; `die` leaves its socket as a process does that is killed."""

    def __init__(self, folder: Path, name: str, **info: Any) -> None:
        self.path = private_folder(endpoint_folder(folder)) / f"1-{name}.sock"
        self._info = ModelInfo(name=name, **({"return_seconds": 60.0, "capacity": 2} | info))
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> "Endpoint":
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._greet, str(self.path))
        return self

    async def _greet(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        welcome = msg.Welcome(Context(), self._info)
        writer.write(encode([welcome]))

    def die(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    def unload(self) -> None:
        self.path.unlink()
        self.die()


folder = pytest.fixture(short_folder)


@contextlib.asynccontextmanager
async def opened(*endpoints: Endpoint) -> AsyncIterator[None]:
    """Endpoints that are closed at the end, also of a test that fails: uvloop waits for that."""
    for endpoint in endpoints:
        await endpoint.open()
    try:
        yield
    finally:
        for endpoint in endpoints:
            endpoint.die()


@contextlib.asynccontextmanager
async def found(folder: Path, *endpoints: Endpoint) -> AsyncIterator[Models]:
    """Models that look for endpoints, and have found some."""
    async with opened(*endpoints), looking(Models(folder)) as models:
        await until(lambda: len(models.all()) == len(endpoints))
        yield models


def exchange(client: Client, path: str = "/v1/completions") -> Exchange:
    scope = {"method": "POST", "path": path, "headers": [], CLIENT: client}
    return Exchange(scope, None, None)  # type: ignore[arg-type]


def ask(models: Models, name: str = "m", client: Client | None = None) -> "asyncio.Task[Any]":
    return asyncio.create_task(models.of_body(exchange(client or Client()), name))


async def dead(models: Models, *endpoints: Endpoint) -> None:
    left = len(models.all()) - len(endpoints)
    for endpoint in endpoints:
        endpoint.die()
    await until(lambda: len(models.all()) == left)


@pytest.mark.parametrize("name", ["m", ""])
async def test_a_request_finds_a_model_before_its_process_has_looked(
    folder: Path, name: str
) -> None:
    models = Models(folder, Starting(["m"]))
    async with opened(endpoint := Endpoint(folder, "m")):
        first, second = await asyncio.gather(ask(models, name), ask(models, name))
        assert first is second is models.find("m")
        assert len(endpoint._writers) == 1


async def test_a_list_has_a_model_before_its_process_has_looked(folder: Path) -> None:
    lists, shows = NotedAnswer(), NotedAnswer()
    shows.parameters = {"model": "m"}
    async with opened(Endpoint(folder, "m")):
        await Listing(Models(folder)).models(lists)  # type: ignore[arg-type]
        await Listing(Models(folder)).model(shows)  # type: ignore[arg-type]
    assert [each["id"] for each in lists.answer["data"]] == [shows.answer["id"]] == ["m"]


@pytest.mark.parametrize("name", ["m", "served", ""])
async def test_requests_wait_for_a_model_that_died_as_many_as_it_takes(
    folder: Path, name: str
) -> None:
    endpoint = Endpoint(folder, "m", served_names=("served",))
    async with found(folder, endpoint) as models:
        await dead(models, endpoint)
        first, second = ask(models, name), ask(models, name)
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match=r"2 requests wait for it.*job_queue_size"):
            await ask(models, name)
        assert not first.done()
        await endpoint.open()
        for each in (await first, await second):
            assert each is models.find("m")


@pytest.mark.parametrize(("end", "awaited"), [(die, ["m"]), (EndpointServer.close, [])])
async def test_a_stub_says_by_its_socket_whether_it_was_unloaded(
    folder: Path, end: Callable[[EndpointServer], None], awaited: list[str]
) -> None:
    stub = open_endpoint("m", IdleWorkers(), return_seconds=60.0, capacity=2)
    async with found(folder) as models:
        await until(models.all)
        await asyncio.to_thread(end, stub)
        await until(lambda: not models.all())
        assert models.outages.awaited == awaited
    stub.close()


async def test_the_wait_is_that_of_answers_and_then_none_waits(folder: Path) -> None:
    endpoint = Endpoint(folder, "m", return_seconds=0.4)
    async with found(folder, endpoint) as models:
        await dead(models, endpoint)
        with pytest.raises(UnavailableError, match=r"not back within 0 s.*migration_timeout"):
            await ask(models)
        with pytest.raises(UnavailableError, match="no model is loaded"):
            await ask(models)


async def test_who_leaves_makes_room_for_another(folder: Path) -> None:
    endpoint = Endpoint(folder, "m", capacity=1)
    async with found(folder, endpoint) as models:
        await dead(models, endpoint)
        client = Client()
        first = ask(models, client=client)
        await until(lambda: models.outage_counts()["m"]["waiting"])
        client.leave()
        with pytest.raises(ClientGoneError):
            await first
        second = ask(models)
        await endpoint.open()
        assert (await second).name == "m"


async def test_one_that_is_back_is_not_another_that_is_awaited(folder: Path) -> None:
    a, b = Endpoint(folder, "a"), Endpoint(folder, "b")
    async with found(folder, a, b) as models:
        await dead(models, a, b)
        # Not told apart from a model that is not loaded yet.
        with pytest.raises(UnavailableError, match="no model is loaded"):
            await ask(models, "")
        waiting = ask(models, "b")
        await a.open()
        await until(models.all)
        assert (await ask(models, "a")).name == "a"
        with pytest.raises(UnknownModelError, match=r"`c` does not exist\. Served: a\.$"):
            await ask(models, "c")
        # A body that names none is not for the one that happens to be back.
        with pytest.raises(RequestError):
            await ask(models, "")
        assert not waiting.done()
        await b.open()
        assert (await waiting).name == "b"


async def test_a_name_does_not_depend_on_what_else_is_loaded(folder: Path) -> None:
    configured = {"a": ("lmi", "x"), "b": ("lmi",), "c": ("a",)}
    models = Models(folder, Starting(configured), configured)
    a, b, c = (Endpoint(folder, name, served_names=configured[name]) for name in "abc")
    async with looking(models):
        await a.open()
        await until(lambda: models.find("a"))
        assert models.find("x") is models.find("a")
        with pytest.raises(UnavailableError, match="being loaded: b, c"):
            await ask(models, "lmi")
        for each in (b, c):
            await each.open()
        await until(lambda: len(models.all()) == 3)
        assert models.find("a") is not models.find("c")
        for each in (b, c):
            await dead(models, each)
            each.path.unlink(missing_ok=True)
            assert models.find("lmi") is None
            assert models.find("x") is models.find("a")
        await dead(models, a)


async def test_a_name_is_free_when_the_other_model_is_unloaded(folder: Path) -> None:
    a, b = (Endpoint(folder, name, served_names=("lmi",)) for name in "ab")
    async with found(folder, a, b) as models:
        assert models.find("lmi") is None
        b.unload()
        await until(lambda: models.find("lmi") is models.find("a"))


async def test_probes_are_told_of_a_model_that_is_awaited(folder: Path) -> None:
    endpoint = Endpoint(folder, "m", return_seconds=1.0)
    async with found(folder, endpoint) as models:
        health = HealthChecks(models)
        await dead(models, endpoint)
        assert await health.problems() == ["m: it is down, and is expected back"]
        await until(lambda: not models.outages.awaited)
        assert await health.problems() == ["no model is loaded"]


async def test_while_models_are_loaded_no_answer_is_final(folder: Path) -> None:
    starting = Starting(["late", "m"])
    models = Models(folder, starting)
    async with looking(models):
        health, client = HealthChecks(models), Client()
        assert await health.problems() == ["loading late", "loading m"]
        with pytest.raises(UnavailableError, match="late, m"):
            await ask(models)
        endpoint = await Endpoint(folder, "m").open()
        await until(lambda: models.find("m"))
        assert "loading late" in await health.problems()
        assert await ask(models) is models.find("m")
        # It may be of the one that is not there yet.
        for name in ("", "late", "served by late"):
            with pytest.raises(UnavailableError, match="late"):
                await ask(models, name, client)
        late = await Endpoint(folder, "late").open()
        await until(lambda: models.find("late"))
        assert not models.starting.loading
        with pytest.raises(UnknownModelError, match=r"Served: (late, m|m, late)\.$"):
            await ask(models, "none")
        await dead(models, late)
        assert models.starting.loading == ["late"]
        endpoint.unload()
        await until(lambda: not models.all())
        assert models.starting.loading == ["late"]


async def test_a_model_that_is_downloaded_is_told_with_its_share(folder: Path) -> None:
    loading = Loading("late", "downloading: 62 %", 62, 100, 0.2, 190.0)
    endpoints = private_folder(endpoint_folder(folder))
    text = json.dumps({**loading._asdict(), "began": 0, "pid": os.getpid()})
    (endpoints / "1-late.loading").write_text(text, "utf-8")
    models = Models(folder, Starting(["late"]))
    assert await HealthChecks(models).problems() == ["loading late: 62 %, about 3 min"]
    with pytest.raises(LoadingError, match="late is loading: 62 %, about 3 min") as error:
        await ask(models)
    assert error.value.seconds == 190
    exchange = NotedAnswer()
    await state.show(models, exchange)  # type: ignore[arg-type]
    (shown,) = exchange.answer["models"]
    assert (shown["model"], shown["loading"]["total"]) == ("late", 100)


async def test_what_waited_is_counted(folder: Path) -> None:
    endpoint = Endpoint(folder, "m", migration_limit=1)
    late = Endpoint(folder, "late", return_seconds=1.5)
    async with found(folder, endpoint, late) as models:
        none = {"waiting": 0, "moved": 0, "held": 0, "given_up": 0}
        assert models.outage_counts() == {"late": none, "m": none}
        (model,) = (each for each in models.all() if each.name == "m")
        model.connection.submit((GenerateRequest("a"),), "")
        await dead(models, endpoint, late)
        waiting = ask(models), ask(models, "late")
        await until(lambda: models.outage_counts()["late"]["held"])
        assert models.outage_counts()["m"] == none | {"waiting": 2, "held": 1}
        exchange = NotedAnswer()
        await state.show(models, exchange)  # type: ignore[arg-type]
        assert exchange.answer["models"][-1] == {
            "model": "m",
            "error": "it is down, and is expected back",
            "front_end": none | {"waiting": 2, "held": 1},
        }
        with pytest.raises(UnavailableError, match="not back"):
            await waiting[1]
        await endpoint.open()
        await waiting[0]
        assert models.outage_counts() == {"m": none | {"moved": 1, "held": 1}}
        await late.open()
        await until(lambda: models.find("late"))
        assert models.outage_counts()["late"] == none | {"held": 1, "given_up": 1}


async def test_a_server_that_stops_lets_none_wait(folder: Path) -> None:
    endpoint = Endpoint(folder, "m")
    async with found(folder, endpoint) as models:
        await dead(models, endpoint)
        waiting = ask(models)
        await until(lambda: models.outage_counts()["m"]["waiting"])
        models.outages.close()
        with pytest.raises(UnavailableError, match="process died"):
            await waiting
        assert models.outages.awaited == []


async def test_a_front_end_begins_when_it_knows_all_models_or_a_moment_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Endpoint(folder, "silent")
    connections: list[asyncio.StreamWriter] = []
    async with found(folder) as models:
        path = str(silent.path)
        server = await asyncio.start_unix_server(lambda _, each: connections.append(each), path)
        await until(lambda: connections)
        # One that serves nobody yet waits for a moment only.
        await find_models(models, folder)
        monkeypatch.setattr(module, "_FIND_SECONDS", HANG_SECONDS)
        connections[0].write(encode([msg.Welcome(Context(), ModelInfo(name="silent"))]))
        await find_models(models, folder)
        assert [each.name for each in models.all()] == ["silent"]
        server.close()
        for each in connections:
            each.close()


async def test_a_front_end_does_not_take_over_while_a_model_loads(folder: Path) -> None:
    endpoint, other = await Endpoint(folder, "a").open(), Endpoint(folder, "b")
    async with looking(Models(folder, Starting(["a", "b"]))) as models:
        await until(lambda: models.starting.loading == ["b"])
        assert not models.are_complete
        await other.open()
        await until(lambda: models.are_complete)
    for each in (endpoint, other):
        each.die()
