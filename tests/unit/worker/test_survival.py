"""How long a worker waits for its next stub; tests/contract/test_survivors.py has real ones."""

import asyncio
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.protocol import Engine
from lmi_backend.errors import ConfigurationError, EngineDeadError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.ipc.survivor import OneProcess, Place, SurvivorRecord, is_served, places
from lmi_backend.worker import survival
from lmi_backend.worker.starting import StartedEngine
from lmi_backend.worker.survival import OwnOutput, Survival
from tests.support.run.waiting import HANG_SECONDS


class Conversation:
    """One whose stub has died."""

    is_orphan = True

    def __init__(self, loaded: StartedEngine) -> None:
        self.loaded = loaded
        self.is_open = True

    def close_connection(self) -> None:
        self.is_open = False


class FailingEngine(Engine):
    """Has died."""

    async def check_health(self) -> None:
        raise EngineDeadError("its core was killed")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Where this process is written down as a worker, while a `serve` lives."""
    monkeypatch.setattr(survival, "RETURN_SECONDS", 0.2)
    reader, writer = os.pipe()
    own = survival.OwnOutput
    monkeypatch.setattr(survival, "OwnOutput", lambda: own(writer))
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    made = Place.of(tmp_path, "model", 0)
    this = OneProcess.of(os.getpid())
    made.write(SurvivorRecord(this, this, "token", "key", (), [], "/folder", "/pool"))
    yield made
    for each in (reader, writer, lock):
        os.close(each)


def _loaded(place: Place, engine: Engine | None = None, **more: Any) -> StartedEngine:
    start = msg.Start("echo", EngineConfig(model="", name="model"), return_to=place.text)
    engine = engine or Engine(start.config)
    return StartedEngine(start, engine, Capabilities("echo", "1", 10), **more)


async def _waits(loaded: StartedEngine) -> str:
    conversation: Any = Conversation(loaded)
    assert await Survival("token", 0).next_stub(conversation) is None
    return "for a time" if conversation.is_open is False else "not at all"


def test_what_is_written_down_is_for_this_user_alone(place: Place) -> None:
    (path,) = place.socket.parent.glob("*.worker")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.text for each in places(path.parent, "model")] == [place.text]
    assert not [*places(path.parent, "another")]
    assert place.index == 0
    path.write_bytes(b"of another release")
    assert place.read() is None


@pytest.mark.parametrize(
    ("kind", "why"), [(Engine, "none has come"), (FailingEngine, "its core was killed")]
)
async def test_one_for_which_none_comes_or_whose_engine_has_died_stops(
    place: Place, caplog: pytest.LogCaptureFixture, kind: type[Engine], why: str
) -> None:
    caplog.set_level("INFO")
    await _waits(_loaded(place, kind(EngineConfig(model=""))))
    assert f"the worker stops: {why}" in caplog.text
    assert place.read() is None


async def test_a_worker_that_is_not_written_down_ends_at_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is what is written of another one removed."""
    caplog.set_level("INFO")
    record = place.read()
    assert record is not None
    other = OneProcess(record.worker.pid + 1, 1)
    place.write(SurvivorRecord(other, other, "token", "key", (), [], "/folder", "/pool"))
    await _waits(_loaded(place))
    assert "this worker is not written down" in caplog.text
    assert place.read() is not None


async def test_one_that_was_just_taken_over_ends_with_its_stub(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await _waits(_loaded(place, is_taken_over=True))
    assert "soon after it had taken this worker over" in caplog.text


def test_a_serve_that_has_ended_is_told(tmp_path: Path) -> None:
    assert not is_served(tmp_path)
    assert not is_served(tmp_path / "none")
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    assert is_served(tmp_path)
    os.close(lock)
    assert not is_served(tmp_path)


class AdapterEngine(Engine):
    """Notes what it is told to do."""

    def __init__(self) -> None:
        super().__init__(EngineConfig(model=""))
        self.done: list[str] = []

    async def load_adapter(self, name: str, folder: str, *, preload: bool, pin: bool) -> None:
        self.done.append(f"load {name} from {folder}")
        if folder == "/bad":
            raise ValueError("cannot be loaded")
        if folder == "/slow":
            await asyncio.Event().wait()

    async def unload_adapter(self, name: str) -> None:
        self.done.append(f"unload {name}")


async def test_it_says_which_adapters_it_has_and_of_which_it_is_not_certain(place: Place) -> None:
    """One that could not be loaded is as before; of one that was broken off nobody knows."""
    engine = AdapterEngine()
    loaded = _loaded(place, engine)
    for name, folder, digest in (
        ("kept", "/kept", "1"), ("kept", "/bad", "2"), ("bad", "/bad", "1"),
        ("gone", "/gone", "1"), ("gone", "", ""),
    ):  # fmt: skip
        order = msg.SetAdapter(1, name, folder, digest=digest)
        try:
            await loaded.set_adapter(engine, order)
        except ValueError:
            assert folder == "/bad"
    broken = asyncio.create_task(loaded.set_adapter(engine, msg.SetAdapter(2, "slow", "/slow")))
    await asyncio.sleep(0)
    broken.cancel()
    assert loaded.adapters == {"kept": "1", "slow": ""}
    await loaded.set_adapter(engine, msg.SetAdapter(3, "never loaded", ""))
    assert engine.done[-2:] == ["unload gone", "load slow from /slow"]
    await loaded.start_again(msg.Start("echo", loaded.start.config, return_to=place.text))
    assert loaded.is_taken_over


async def test_it_serves_nothing_else_than_it_has_loaded(place: Place) -> None:
    other = EngineConfig(model="another", name="model")
    for start in (msg.Start("echo", other), msg.Start("vllm", _loaded(place).start.config)):
        with pytest.raises(ConfigurationError, match="another"):
            await _loaded(place).start_again(start)


MUCH = 1 << 20


def test_what_is_printed_while_nobody_reads_is_dropped_but_for_the_last() -> None:
    reader, writer = os.pipe()
    output = OwnOutput(writer)
    os.close(reader)
    printing = threading.Thread(target=lambda: _print(writer))
    with output.flowing():
        printing.start()
        printing.join(HANG_SECONDS)
        assert not printing.is_alive()
    # As the next stub opens it.
    with open(f"/proc/self/fd/{writer}", "rb", buffering=0) as again:
        os.close(writer)
        assert again.read(MUCH).endswith(b"the end\n")


def _print(writer: int) -> None:
    with os.fdopen(os.dup(writer), "wb") as file:
        file.write(b"x" * MUCH)
        file.write(b"the end\n")


def test_what_is_no_pipe_cannot_be_kept() -> None:
    with open(os.devnull, "wb") as file:
        assert not OwnOutput(file.fileno()).is_writable
