"""The description of the paths, for programs and for people."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.clients.registry import PATHS
from lmi_backend.clients.spec import DESCRIPTION
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from tests.support.answers.asking import ask
from tests.support.doubles.scripted_model import NAME, Scripted
from tests.support.run.waiting import wait_for

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


def described_by(folder: Path, *chunks: HttpChunk) -> Any:
    """Return the description where one engine answers so, and another model is its user's code."""

    def answer(order: Any) -> list[msg.ToClient | None]:
        assert order.request.path == DESCRIPTION
        failure = msg.Failure(order.id, "engine", "no server")
        return [msg.Output(order.id, each) for each in chunks] or [failure]

    with Scripted(folder).run() as server:
        server.models[NAME].script = answer
        found = json.loads(server.ask("GET", "/openapi.json").data)
        wait_for(
            lambda: not any(each.connection.num_open for each in server.front_end.models.all())
        )
    return found


def test_bodies_are_as_the_first_engine_that_can_describes_them(tmp_path: Path) -> None:
    data = json.dumps(DESCRIBED).encode()
    document = described_by(tmp_path, HttpChunk(data[:20]), HttpChunk(data[20:], is_last=True))
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"] == SCHEMA
    assert (chat["summary"], chat["tags"]) == ("Chat", ["OpenAI"])
    assert chat["security"] == [{"client-key": []}]
    assert "/sleep" not in document["paths"]
    # The answer is ours.
    assert "summary" not in document["paths"]["/version"]["get"]
    assert set(document["components"]["schemas"]) == {"Chat"}


@pytest.mark.parametrize(
    "chunks", [(), (HttpChunk(b"{}", True, 404),), (HttpChunk(b"no JSON", True),)]
)
def test_an_engine_that_describes_nothing_is_passed_over(
    chunks: tuple[HttpChunk, ...], tmp_path: Path
) -> None:
    assert "/v1/chat/completions" in described_by(tmp_path, *chunks)["paths"]


async def test_it_needs_a_key_where_keys_are_needed(tmp_path: Path) -> None:
    front_end = FrontEnd(Settings(base=tmp_path, api_key="a-key"))
    assert (await ask(front_end, "/openapi.json"))[0] == 401
    assert (await ask(front_end, "/openapi.json", {"authorization": "Bearer a-key"}))[0] == 200
    status, headers, body = await ask(front_end, "/docs")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"openapi.json" in body
    status, headers, _ = await ask(front_end, "/docs/")
    assert (status, headers["location"]) == (308, "../docs")
