"""Bodies and headers that end Triton 24.10, or may: through the front end none reaches it."""

import http.client
import random
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from tests.support.answers.triton_bodies import FAMILIES, LENGTH, Sent, inference, mutated, plain
from tests.support.run.waiting import HANG_SECONDS
from tests.support.servers.serving import Served

INFER = "/v2/models/echo_infer/infer"
PATHS = (INFER, "/v2/models/echo/infer", "/v2/models/echo/generate",
         "/v2/models/echo_infer/generate", "/v2/models/echo_infer/generate_stream")  # fmt: skip
ODD_PATHS = (INFER, "/v2/models/echo_infer/generate")
MUTATED = 300


@pytest.fixture
def unharmed(attacked: Served) -> Iterator[Served]:
    """A server that is the same process after a test, and answers."""
    before = [each.pid for each in tritonserver(attacked)]
    yield attacked
    assert [each.pid for each in tritonserver(attacked)] == before
    assert attacked.ask(INFER, plain(inference())[1])[0] == 200


def tritonserver(server: Served) -> list[psutil.Process]:
    (found,) = server.named("tritonserver")
    return [found]


def statuses(server: Served, sent: list[Sent], paths: tuple[str, ...] = PATHS) -> set[int]:
    seen = set()
    with closing(http.client.HTTPConnection(server.front_end, timeout=HANG_SECONDS)) as connection:
        for headers, data in sent:
            for path in paths:
                connection.request("POST", path, data, headers)
                response = connection.getresponse()
                response.read()
                seen.add(response.status)
    return seen


@pytest.mark.parametrize("family", ["names", "types", "lengths", "encodings", "forms"])
def test_odd_values_are_answered(unharmed: Served, family: str) -> None:
    # 500 is Triton's word for a parameter of its own that has another type.
    assert statuses(unharmed, list(FAMILIES[family]()), ODD_PATHS) <= {200, 400, 413, 500}


def test_two_lengths_are_one(unharmed: Served) -> None:
    data = plain(inference())[1]
    with closing(
        http.client.HTTPConnection(unharmed.front_end, timeout=HANG_SECONDS)
    ) as connection:
        connection.putrequest("POST", INFER)
        for value in ("+5", str(len(data))):
            connection.putheader(LENGTH, value)
        connection.putheader("content-length", str(len(data)))
        connection.endheaders(data)
        assert connection.getresponse().status == 200


def test_bodies_with_something_else_in_them(unharmed: Served) -> None:
    chance = random.Random(35)
    sent = [mutated(chance) for _ in range(MUTATED)]
    seen = statuses(unharmed, sent, (INFER,))
    assert {200, 400} <= seen <= {200, 400, 500}
