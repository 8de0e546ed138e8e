"""Exchanges are read from the bytes of a connection, however these are cut."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.migrate.exchange import path_of, sent_headers
from lmi_backend.migrate.reading import read_corpus
from lmi_backend.migrate.recording import LARGEST, Exchanges

POST = (
    b"POST /v1/completions?api_key=secret&a=1 HTTP/1.1\r\nHost: a\r\n"
    b"Authorization: Bearer secret\r\n"
    b"X-Api-Key: secret\r\nCookie: secret\r\nContent-Type: application/json\r\nX-Own: 1\r\n"
    b'Content-Length: 13\r\n\r\n{"prompt": 1}'
)
GET = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: secret\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
    b"9\r\ndata: a\n\n\r\nf\r\ndata: \xc3\xa9 [DONE]\r\n3\r\n\xff\n\n\r\n0\r\n\r\n"
)
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def read(
    requests: bytes, answers: bytes, chance: random.Random | None = None, *, is_ended: bool = True
) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = []
    exchanges = Exchanges(lambda line, _: taken.append(line), lambda: True)
    for data, feed in ((requests, exchanges.feed_request), (answers, exchanges.feed_answer)):
        left = data
        while left:
            size = chance.randrange(1, 30) if chance else len(left)
            feed(left[:size])
            left = left[size:]
    if is_ended:
        exchanges.end()
    return taken


@pytest.mark.parametrize("seed", range(5))
def test_pipelined_requests_get_their_answers(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    lines = read(POST + GET + POST, CONTINUE + STREAM + WHOLE + STREAM, chance)
    assert [line["path"] for line in lines] == [
        "/v1/completions?api_key=***&a=1",
        "/ping",
        "/v1/completions?api_key=***&a=1",
    ]
    assert "secret" not in json.dumps(lines)
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    corpus = read_corpus([str(file)], {}, say=print)
    assert not corpus.problems
    first, ping, _ = corpus.exchanges
    assert first.request.body == b'{"prompt": 1}'
    assert first.request.headers == {"content-type": "application/json", "x-own": "1"}
    assert first.answer is not None
    assert first.answer.body == b"data: a\n\ndata: \xc3\xa9 [DONE]\xff\n\n"
    assert first.answer.seconds is not None
    assert ping.answer is not None
    assert ping.answer.body == b"ok"


def test_an_answer_may_end_with_the_connection() -> None:
    answer = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nab"
    assert read(GET, answer, is_ended=False) == []
    (line,) = read(GET, answer)
    assert [text for _, text in line["answer"]["events"]] == ["ab"]
    # One that is cut is no measure.
    assert read(GET, WHOLE[:-1]) == []
    assert read(GET, b"") == []


@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        (b"\x00\xff\x16\x03", WHOLE),
        (GET, b"\x00\xff"),
        (b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + GET, WHOLE[:-2] + WHOLE),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n\x16\x03", b"HTTP/1.1 200 OK\r\n\r\n\x16"),
        (
            b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x01a",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x01a",
        ),
    ],
)
def test_what_cannot_be_read_passes_unread(requests: bytes, answers: bytes) -> None:
    assert read(requests, answers) == []


def test_a_large_body_is_counted_and_not_kept() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LARGEST + 1)
    assert read(GET + GET, head + bytes(LARGEST + 1) + WHOLE)[0] == {}


def test_a_compressed_answer_can_be_replayed(tmp_path: Path) -> None:
    data = gzip.compress(b'{"a": 1}')
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data)
    file = tmp_path / "a.jsonl"
    for sent, is_right in ((data, True), (b"x" * len(data), False)):
        file.write_text(json.dumps(read(GET, head + sent)[0]) + "\n" + '{"path": "/"}\n')
        corpus = read_corpus([str(file)], {}, say=print)
        assert len(corpus.problems) == (not is_right)
        if is_right:
            answer = corpus.exchanges[0].answer
            assert answer is not None
            assert (answer.body, "content-encoding" in answer.headers) == (b'{"a": 1}', False)


def test_only_a_sample_is_taken() -> None:
    taken: list[dict[str, Any]] = []
    choices = iter([True, False, True])
    exchanges = Exchanges(lambda line, _: taken.append(line), lambda: next(choices))
    assert exchanges.is_idle
    exchanges.feed_request(GET + POST + GET)
    exchanges.feed_answer(WHOLE + WHOLE)
    assert not exchanges.is_idle
    exchanges.feed_answer(WHOLE)
    assert exchanges.is_idle
    assert [line["path"] for line in taken] == ["/ping", "/ping"]


MARK = "mark-6f1c,tail"
"""No part of it may be written."""
MARKED = {
    "a header's name": f"x-api-key: {MARK}",
    "a cookie": f"set-cookie: a={MARK}",
    "a query": f"referer: http://x/?a=1&api_key={MARK}&b=2",
    "a name that is escaped": f"referer: http://x/?api%5Fkey={MARK}",
    "a fragment": f"referer: http://x/a#access_token={MARK}&b=1",
    "a parameter of a path": f"location: /a;token={MARK}?b=1",
    "an attribute": "x-amzn-sagemaker-custom-attributes: a=1;token=mark-6f1c;b=2",
    "JSON": f'x-own: {{"password": "{MARK}"}}',
    "a bearer": "x-own: Bearer mark-6f1c-mark-6f1c",
    "a user": "origin: http://u:mark-6f1c@localhost",
    "a user of a host": "host: u:mark-6f1c@localhost:8080",
    "a user of a host before": "forwarded: for=1.2.3.4;host=u:mark-6f1c@localhost",
}
TARGETS = (
    f"/v1/models?api_key={MARK}&a=1",
    f"/v1/models?a=1;sig={MARK}",
    f"/v1/models#id_token={MARK}",
    "http://u:mark-6f1c@localhost/v1/models",
    f"http://localhost/v1/models?API-KEY={MARK}",
)


@pytest.mark.parametrize("mark", [*MARKED.values(), *TARGETS], ids=[*MARKED, *TARGETS])
def test_no_secret_is_written_or_sent_again(mark: str) -> None:
    target, header = (mark, "x: y") if mark in TARGETS else ("/", mark)
    request = f"POST {target} HTTP/1.1\r\n{header}\r\nContent-Length: 0\r\n\r\n"
    answer = f"HTTP/1.1 200 OK\r\n{header}\r\nContent-Length: 0\r\n\r\n"
    (line,) = read(request.encode(), answer.encode())
    name, value = header.split(": ", 1)
    again = path_of(target), sent_headers({name: value, "x-own-name": "a=b"})
    for written in (json.dumps(line), json.dumps(again)):
        assert "mark" not in written
        assert "tail" not in written
    assert again[1]["x-own-name"] == "a=b"
