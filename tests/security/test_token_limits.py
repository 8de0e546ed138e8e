"""A key's tokens count on every road, also where Triton answers."""

from typing import Any

import pytest

from tests.support.answers.triton_bodies import LENGTH, inference, tensor
from tests.support.harm.attackers import CLIENT, METERED
from tests.support.servers.serving import Served

TEXT = "a b"
ROADS: tuple[tuple[str, dict[str, str], Any], ...] = (
    ("/v2/models/echo/generate", {}, {"text_input": TEXT, "max_tokens": METERED}),
    (
        "/v2/models/echo/generate",
        {},
        {"text_input": TEXT, "max_tokens": METERED, "timeout": 60_000_000},
    ),
    ("/v2/models/echo_infer/generate", {}, {"text_input": TEXT, "max_tokens": METERED}),
    ("/v2/models/echo_infer/generate_stream", {}, {"text_input": TEXT, "max_tokens": METERED}),
    ("/v2/models/echo_infer/infer", {}, inference(tensor(), parameters={"max_tokens": METERED})),
    (
        "/v2/models/echo_raw/infer",
        {LENGTH: "0"},
        {"inputs": TEXT, "parameters": {"max_new_tokens": METERED}},
    ),
    ("/invocations", {}, {"inputs": TEXT, "parameters": {"max_new_tokens": METERED}}),
)


@pytest.mark.parametrize("number", range(len(ROADS)), ids=[path for path, *_ in ROADS])
def test_tokens_are_used_up(guarded: Served, number: int) -> None:
    path, headers, body = ROADS[number]
    key = {"authorization": f"Bearer metered{number}-key"}
    assert guarded.ask(path, body, headers | key)[0] == 200
    status, answer, _ = guarded.ask(path, body, headers | key)
    assert (status, "retry-after" in answer) == (429, True)
    line = rf" {path} status=200 .* prompt_tokens=(\d+) tokens=(\d+) .*metered{number}"
    assert min(map(int, guarded.logged(line).groups())) > 0


@pytest.mark.parametrize("output", ["finish_reason", "headers", "response"])
def test_an_answer_without_its_text_is_refused(guarded: Served, output: str) -> None:
    key = {"authorization": "Bearer metered7-key"}
    body = inference(outputs=[{"name": output}], parameters={"max_tokens": METERED})
    status, _, answer = guarded.ask("/v2/models/echo_infer/infer", body, key)
    assert (status, b"text_output" in answer) == (400, True)
    assert guarded.ask("/v2/models/echo_infer/infer", body, CLIENT)[0] == 200


def test_a_query_is_no_way_around(guarded: Served) -> None:
    key = {"authorization": "Bearer metered8-key"}
    path, _, body = ROADS[0]
    assert guarded.ask(f"{path}?x=1", body, key)[0] == 400
