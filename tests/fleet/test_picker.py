"""What the Gateway API's endpoint picker needs of a server, up to a model behind Envoy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doubles.endpoint_picker import Picker, picking_router
from tests.support.run.waiting import wait_for
from tests.support.servers.pods import MODEL, Pod
from tests.support.servers.serving import answer_of


@pytest.fixture(scope="module")
def picker(servers: list[Pod]) -> Iterator[tuple[Picker, int]]:
    made = Picker([each.port for each in servers])
    with made.serving() as port:
        wait_for(lambda: len(made.seen) == len(servers))
        yield made, port


def test_requests_go_through_envoy_to_who_has_the_least_to_do(
    servers: list[Pod], picker: tuple[Picker, int], tmp_path: Path
) -> None:
    made, picker_port = picker
    with (
        picking_router(picker_port).running(tmp_path, [each.port for each in servers]) as running,
        servers[0].occupied(4),
        servers[1].occupied(2),
    ):
        wait_for(lambda: [made.seen[each.port].running for each in servers] == [4, 2, 0])
        before = [len(each.answered()) for each in servers]
        address = running.url.removeprefix("http://")
        for number in range(10):
            body = {"model": MODEL, "prompt": "a b", "max_tokens": 2}
            headers = {"content-type": "application/json", "x-request-id": f"picked-{number}"}
            status, _, data = answer_of(address, "/v1/completions", body, headers)
            assert (status, json.loads(data)["choices"][0]["text"]) == (200, "a b")
        wait_for(lambda: sum("picked-" in each for each in servers[2].answered()) == 10)
        assert [len(each.answered()) for each in servers[:2]] == before[:2]
    assert made.refused == []
