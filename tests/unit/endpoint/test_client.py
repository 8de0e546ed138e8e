"""An alias model outlives what goes wrong with the model whose workers it shares."""

from pathlib import Path
from typing import Any

import pytest

from lmi_backend.endpoint.client import AliasModel
from lmi_backend.generation import Delta, GenerateRequest
from lmi_backend.ipc import messages as msg
from tests.support.doubles.endpoints import open_endpoint, short_folder
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.service_bench import Sink
from tests.support.run.waiting import wait_for

folder = pytest.fixture(short_folder)


def test_a_fault_costs_the_requests_that_are_open_and_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lmi_backend.threads.PAUSE_SECONDS", 0.01)
    endpoint = open_endpoint("m", IdleWorkers())
    alias = AliasModel("m")
    wait_for(lambda: alias.workers.context is not None)
    first, second = Sink("1"), Sink("2")
    alias.service.submit((GenerateRequest("a"),), first)
    hear, faults = alias.service.on_messages, [TypeError("a bug")]

    def failing_hear(messages: list[Any]) -> None:
        if faults and messages:
            raise faults.pop()
        hear(messages)

    monkeypatch.setattr(alias.service, "on_messages", failing_hear)
    service = endpoint.service
    wait_for(lambda: service.snapshot().open == 1)
    service.on_messages([msg.Output(1, Delta("lost", 1))])
    wait_for(lambda: first.ends)
    assert first.ends == ["EngineDeadError"]
    wait_for(lambda: "TypeError: a bug" in caplog.text)
    wait_for(lambda: alias.workers.context is not None)
    alias.service.submit((GenerateRequest("a"),), second)
    wait_for(lambda: 2 in service.states)
    service.on_messages([msg.Output(2, Delta("a", 1, "stop"))])
    wait_for(lambda: second.ends)
    assert second.ends == ["answered"]
    alias.close()
    endpoint.close()
