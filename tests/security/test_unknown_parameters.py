"""A client that sends parameters nobody knows, as many and as long as it can."""

import json
import logging

import pytest

from lmi_backend.clients.openai_bodies import read_completion
from lmi_backend.clients.parameters import DroppedParameters
from lmi_backend.clients.request import read_request
from lmi_backend.engine_config import Context
from tests.support.servers.serving import Served

MANY = 3_000
FORGED = "x\nERROR all is lost\r\x1b[2J\u202e\u2028"


def _body(names: list[str]) -> str:
    return json.dumps({"inputs": "a b", "parameters": dict.fromkeys(names, 1)})


def test_twenty_thousand_names_are_a_few_lines_of_the_log(echo: Served) -> None:
    before = echo.log_file.stat().st_size
    # Of more than 50,000 names and values a request is refused before it is read.
    names = [f"n{number}" for number in range(20_000)]
    for start in range(2):
        status, answer = echo.generate("echo", {"request": _body([f"{start}{n}" for n in names])})
        assert (status, json.loads(answer["response"])["generated_text"][:3]) == (200, "a b")
    echo.logged("more unknown parameters", before)
    log = echo.log(before)
    assert log.count("\n") <= 12
    assert len(log) < 4000
    assert "n19999" not in log


def test_what_is_kept_of_names_does_not_grow(caplog: pytest.LogCaptureFixture) -> None:
    dropped = DroppedParameters()
    for start in range(0, MANY, 1000):
        named = {f"{number}" + "z" * 5000: 1 for number in range(start, start + 1000)}
        taken = read_request([{"inputs": ["a"]}], named | {"beam_width": 2}, Context())
        dropped.note(taken.dropped)
        for more in ({}, {"bad_words": [""]}):
            dropped.note(read_request([{"text_input": ["a"]} | more], named, Context()).dropped)
    assert (
        sum(len(name) for kept in vars(dropped).values() if isinstance(kept, set) for name in kept)
        < 1000
    )
    assert len(caplog.messages) < 20
    assert sum("beam_width" in message for message in caplog.messages) == 1


def test_an_openai_body_says_as_little(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for start in range(3):
        read_completion(
            {"prompt": "a"} | {f"{start} {number}{FORGED}": 1 for number in range(MANY)}
        )
    assert len(caplog.messages) < 20
    assert all(len(message) < 200 and message.isprintable() for message in caplog.messages)
