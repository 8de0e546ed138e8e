"""A front end or an alias model of another release is refused by name, at a real endpoint."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import msgspec
import pytest

from lmi_backend import __version__
from lmi_backend.endpoint import client
from lmi_backend.endpoint.client import AliasModel
from lmi_backend.errors import UnavailableError
from lmi_backend.frontend import connection
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.models import Models
from lmi_backend.frontend.operators.health import HealthChecks
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import encode
from tests.support.doubles.endpoints import open_endpoint, short_folder
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.run.waiting import until, wait_for

BOTH = (
    rf"lmi-backend 9\.8\.7 \(protocol {msg.PROTOCOL + 1}\), the model's stub is lmi-backend "
    rf"{__version__} \(protocol {msg.PROTOCOL}\).* install one release for both"
)


folder = pytest.fixture(short_folder)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the errors of the package: not those of asyncio, for what another test left."""
    ours = [each for each in caplog.records if each.name.startswith("lmi_backend")]
    return [each.getMessage() for each in ours if each.levelno == logging.ERROR]


def _newer(messages: Sequence[object]) -> bytes:
    """Say what the next release would."""
    changes = {"protocol": msg.PROTOCOL + 1, "release": "9.8.7"}
    return encode(
        [
            msgspec.structs.replace(each, **changes) if isinstance(each, msg.Hello) else each
            for each in messages
        ]
    )


def _is_newer(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    if module is client:
        monkeypatch.setattr(module, "encode", _newer)
    else:
        monkeypatch.setattr(module, "encode_request", lambda message: (_newer([message]),))


async def test_a_front_end_of_another_release_is_told_and_tells(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _is_newer(monkeypatch, connection)
    endpoint = open_endpoint("m", IdleWorkers())
    models = Models(folder)
    looking = asyncio.create_task(models.run())
    try:
        await until(lambda: "understand" in models.why_none())
        with pytest.raises(UnavailableError, match=BOTH):
            await models.of_body(cast("Exchange", SimpleNamespace(model="")), "m")
        # A front end that is to take over from one that the model accepts does not.
        assert not models.are_complete
        (problem,) = await HealthChecks(models).problems()
        assert problem == models.why_none()
        # It looks again and again, and does not ask again.
        looks = AsyncMock(side_effect=models.look_again)
        monkeypatch.setattr(models, "look_again", looks)
        await until(lambda: looks.await_count == 3)
        assert models.all() == []
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        endpoint.close()
    messages = errors(caplog)
    stub, front_end = sorted(messages)
    assert stub.startswith("a client of model m is refused: process ")
    assert front_end == f"a model refuses this front end: {problem}"


def test_an_alias_model_of_another_release_is_told_until_it_is_of_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert folder.is_dir()
    with monkeypatch.context() as newer:
        _is_newer(newer, client)
        endpoint = open_endpoint("m", IdleWorkers())
        alias = AliasModel("m")
        wait_for(lambda: "understand" in alias.workers.health().problem)
        with pytest.raises(UnavailableError, match=BOTH):
            alias.context()
    wait_for(lambda: alias.workers.health().is_ready)
    alias.close()
    endpoint.close()
    messages = errors(caplog)
    assert len(messages) == 2
    assert any(
        text.startswith("model m, whose workers this one shares: process") for text in messages
    )


def test_the_first_words_of_any_release_are_understood() -> None:
    """Those of protocol 8, and of one that has more to say."""
    decoder = msgspec.msgpack.Decoder(msg.FromClient)
    old = decoder.decode(msgspec.msgpack.encode(["Hello", 8, 12, 0, b"", b"", True]))
    new = decoder.decode(msgspec.msgpack.encode(["Hello", 99, 12, 0, b"", b"", True, "9", 1, 2]))
    assert (old, new.protocol) == (msg.Hello(8, 12, keeps_ids=True), 99)
    assert msg.Hello(8, 12).release == ""
