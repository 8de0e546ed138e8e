"""What the Gateway API's endpoint picker needs of a server, up to a model behind Envoy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.endpoint_picker import Picker, RefusedError, Seen, parse, picking_router
from tests.support.pods import MODEL, Pod
from tests.support.serving import answer_of
from tests.support.waiting import wait_for


def test_the_newest_series_counts_else_the_first_and_never_a_sum() -> None:
    head = "# TYPE {0} gauge\n"
    text = head.format("vllm:num_requests_waiting")
    text += 'vllm:num_requests_waiting{engine="0"} 3 1000\n'
    text += 'vllm:num_requests_waiting{engine="1"} 5 2000\n'
    text += head.format("vllm:num_requests_running")
    text += 'vllm:num_requests_running{engine="0"} 7\nvllm:num_requests_running{engine="1"} 9\n'
    text += "vllm:kv_cache_usage_perc 0.5\n"
    lora = 'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="{}"}} {}\n'
    text += head.format("vllm:lora_requests_info") + lora.format("a, b", 2) + lora.format("c", 1)
    seen = Seen.of(text)
    assert (seen.waiting, seen.running, seen.max_adapters) == (5, 7, 4)
    # Without a TYPE it is neither gauge nor counter.
    assert seen.kv_usage == 0.0
    assert seen.running_adapters == {"a", "b"}


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE a gauge\n# TYPE a gauge\n",
        "a 1\n# TYPE a gauge\n",
        "# HELP a b\n# HELP a b\n",
        "a 1",
        'a{b="c} 1\n',
        "a b c d\n",
    ],
)
def test_one_wrong_line_loses_the_whole_scrape(text: str) -> None:
    with pytest.raises(RefusedError):
        parse(text)


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
