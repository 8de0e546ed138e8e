"""The description of the paths, for programs and for people."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.clients.registry import PATHS
from lmi_backend.errors import EngineError
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.generation import HttpChunk
from tests.support.asking import ask

SCHEMA = {"$ref": "#/components/schemas/Chat"}
DESCRIBED = {
    "paths": {
        "/v1/chat/completions": {
            "post": {
                "summary": "Chat",
                "requestBody": {"content": {"application/json": {"schema": SCHEMA}}},
            }
        },
        "/sleep": {"post": {}},
        "/version": {"get": {"summary": "of the engine"}},
    },
    "components": {"schemas": {"Chat": {"type": "object"}}},
}


class Answer:
    """A whole answer of an engine, in two parts, or its error."""

    def __init__(self, data: bytes | Exception, status: int) -> None:
        self._data, self._status, self.is_closed = data, status, False

    async def read(self) -> list[HttpChunk]:
        if isinstance(self._data, Exception):
            raise self._data
        half, self._data = self._data[:20], self._data[20:]
        return [HttpChunk(half, is_last=not self._data, status=self._status)]

    def end(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


def model(data: bytes | Exception, *, status: int = 200, is_custom: bool = False) -> Any:
    answer = Answer(data, status)

    def submit(*_: object) -> Answer:
        assert not is_custom
        return answer

    context = SimpleNamespace(is_custom=is_custom)
    return SimpleNamespace(
        context=context, connection=SimpleNamespace(submit=submit), answer=answer
    )


@pytest.fixture
def front_end(tmp_path: Path) -> FrontEnd:
    return FrontEnd(Settings(base=tmp_path))


async def described(front_end: FrontEnd) -> Any:
    status, headers, body = await ask(front_end, "/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    return json.loads(body)


async def test_without_a_model_every_path_is_there(front_end: FrontEnd) -> None:
    document = await described(front_end)
    served = {path.template.replace(":path", "") for path in PATHS}
    assert set(document["paths"]) == served
    for path, row in document["paths"].items():
        for operation in row.values():
            names = {each["name"] for each in operation.get("parameters", [])}
            assert names == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert operation["responses"]
    keys = document["paths"]["/v1/load_lora_adapter"]["post"]["security"]
    assert keys == [{"operator-key": []}]
    assert document["paths"]["/ping"]["get"]["security"] == []


async def test_bodies_are_as_the_first_engine_that_can_describes_them(
    front_end: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [
        model(b"", is_custom=True),
        model(EngineError("no server")),
        model(b"{}", status=404),
        model(b"no JSON"),
        model(json.dumps(DESCRIBED).encode()),
    ]
    monkeypatch.setattr(front_end.models, "all", lambda: models)
    document = await described(front_end)
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"] == SCHEMA
    assert (chat["summary"], chat["tags"]) == ("Chat", ["OpenAI"])
    assert chat["security"] == [{"client-key": []}]
    assert "/sleep" not in document["paths"]
    # The answer is ours.
    assert "summary" not in document["paths"]["/version"]["get"]
    assert set(document["components"]["schemas"]) == {"Chat"}
    assert all(each.answer.is_closed for each in models[1:])


async def test_it_needs_a_key_where_keys_are_needed(tmp_path: Path) -> None:
    front_end = FrontEnd(Settings(base=tmp_path, api_key="a-key"))
    assert (await ask(front_end, "/openapi.json"))[0] == 401
    assert (await ask(front_end, "/openapi.json", {"authorization": "Bearer a-key"}))[0] == 200
    status, headers, body = await ask(front_end, "/docs")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"openapi.json" in body
    status, headers, _ = await ask(front_end, "/docs/")
    assert (status, headers["location"]) == (308, "../docs")
