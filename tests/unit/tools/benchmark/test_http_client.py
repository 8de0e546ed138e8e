"""What the benchmark's HTTP client counts, however the network cuts what comes."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from benchmark.http_client import LINE, SENT, StreamConnection

_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_PARTS = [b'data: {"a":1}\n\n', b'data: {"a":2}\n\n' * 2, b'data: {"a":4}\n\ndata: [DONE]\n\n']
_ANSWER = _HEAD + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in _PARTS) + b"0\r\n\r\n"


_LINES = _HEAD + b'14\r\n{"token": {"id": 1}}\n{"token": {"id": 2}}\n\r\n0\r\n\r\n'


async def _connection(requests: int, event: bytes = SENT) -> StreamConnection:
    done = asyncio.get_running_loop().create_future()
    connection = StreamConnection(b"request", event, iter(range(requests)), done)
    nowhere = SimpleNamespace(write=lambda data: None, close=lambda: None)
    connection.connection_made(cast("Any", nowhere))
    connection.ask()
    return connection


@pytest.mark.parametrize("size", [1, 2, 7, 64, len(_ANSWER)])
async def test_events_are_counted_however_they_are_cut(size: int) -> None:
    connection = await _connection(2)
    for answer in (_ANSWER, _ANSWER):
        for start in range(0, len(answer), size):
            connection.data_received(answer[start : start + size])
    assert [len(each.responses) for each in connection.answers] == [4, 4]
    assert connection.done.done()


@pytest.mark.parametrize("size", [1, 7, 500])
async def test_an_answer_may_have_a_length(size: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n" + b'data: {"a":1}\n' * 2
    connection = await _connection(2)
    for _ in range(2):
        for start in range(0, len(answer), size):
            connection.data_received(answer[start : start + size])
    assert [len(each.responses) for each in connection.answers] == [2, 2]


async def test_an_error_is_told_in_the_words_of_the_server() -> None:
    connection = await _connection(1)
    connection.data_received(b"HTTP/1.1 503 Service Unavailable\r\n\r\nthe reason")
    with pytest.raises(RuntimeError, match="the reason"):
        connection.done.result()


@pytest.mark.parametrize("size", [1, 9, len(_LINES)])
async def test_lines_of_lmi_are_events_too(size: int) -> None:
    connection = await _connection(1, LINE)
    for start in range(0, len(_LINES), size):
        connection.data_received(_LINES[start : start + size])
    assert [len(each.responses) for each in connection.answers] == [2]
