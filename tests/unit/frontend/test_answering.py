"""What becomes of a request between its body and its answer."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.clients.spec import Read
from lmi_backend.engine_config import ModelInfo
from lmi_backend.frontend import answering as module
from lmi_backend.frontend.answering import Answering
from lmi_backend.generation import HttpRequest


async def test_a_request_goes_with_what_its_headers_name_and_what_changes_nothing_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def send(*_: object) -> None:
        pass

    async def read(*_: object) -> tuple[Any, Read]:
        connection = SimpleNamespace(submit=lambda *given: named.append(given[-2:]))
        model: Any = SimpleNamespace(connection=connection, info=ModelInfo())
        form: Any = None
        return model, Read(HttpRequest("/", b""), form, dropped=("a_name_of_nobody",))

    async def text(*_: object) -> bytes:
        return b""

    named: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module, "send_answer", send)
    spec = SimpleNamespace(failure=None)
    exchange: Any = SimpleNamespace(
        text=text,
        headers={
            "x-session-id": "one",
            "x-amzn-sagemaker-prefix-aware-id": "two",
            "x-llm-d-slo-ttft-ms": "500",
        },
        parameters={},
        tenant="",
        request_id="",
        spec=spec,
        path="/",
    )
    reading: Any = SimpleNamespace(actions={"read": read}, models=None)
    answering = Answering(reading, 1, 1.0)
    path: Any = SimpleNamespace(action="read")
    for _ in range(2):
        await answering(path, exchange)
    (record,) = caplog.records
    assert "parameter 'a_name_of_nobody' of a body is unknown" in record.getMessage()
    # A header of SageMaker's comes first.
    assert named == [("two", (500, 0))] * 2
