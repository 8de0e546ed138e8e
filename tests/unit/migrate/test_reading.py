"""Recorded exchanges, from lines of ours, SageMaker's data capture and HAR files."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.migrate.reading import Corpus, read_corpus
from tests.support.doubles.s3_server import s3_server
from tests.support.run.places import TESTS

BODY = {"inputs": "a"}
READ_WRONGLY = "née €".encode().decode("cp1252") + " \u00c2\x9d"


def read(path: Path) -> Corpus:
    return read_corpus([str(path)], {}, say=print)


def lines(path: Path, *records: Any) -> Path:
    written = (each if isinstance(each, str) else json.dumps(each) for each in records)
    path.write_text("".join(f"{line}\n" for line in written), encoding="utf-8")
    return path


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_line_is_a_request_and_its_answer(tmp_path: Path) -> None:
    answer = {
        "status": 200,
        "headers": {"Content-Type": "text/event-stream"},
        "events": [[0.1, "data: a\n\n"], [0.3, {"base64": base64_of(b"data: b\n\n")}]],
        "seconds": 0.4,
    }
    headers = {"X-Own": "1", "Authorization": "Bearer x", "Host": "a", "cookie": "***"}
    line = {"path": "http://old:80/v1/completions?a=1", "headers": headers, "body": BODY}
    (exchange,) = read(lines(tmp_path / "a.jsonl", line | {"answer": answer})).exchanges
    request, reply = exchange.request, exchange.answer
    assert (request.method, request.path) == ("POST", "/v1/completions?a=1")
    assert (request.client, request.template) == ("OpenAI", "/v1/completions")
    # No key for the old server reaches the new one.
    assert request.headers == {"x-own": "1", "content-type": "application/json"}
    assert json.loads(request.body) == BODY
    assert reply is not None
    assert (reply.status, reply.media_type, reply.seconds) == (200, "text/event-stream", 0.4)
    assert (reply.body, reply.arrivals) == (b"data: a\n\ndata: b\n\n", (0.1, 0.3))
    assert exchange.place == f"{tmp_path}/a.jsonl:1"


@pytest.mark.parametrize(
    ("record", "body", "answer"),
    [
        ({"body": "a: b"}, b"a: b", None),
        ({"body_base64": base64_of(b"\x00\xff")}, b"\x00\xff", None),
        ({"body": BODY, "answer": {"generated_text": "b"}}, b'{"inputs": "a"}', 23),
        ({"body": BODY, "answer": "b"}, b'{"inputs": "a"}', 1),
        ({"method": "get"}, b"", None),
    ],
)
def test_bodies_may_be_json_text_or_base64(
    record: dict[str, Any], body: bytes, answer: int | None, tmp_path: Path
) -> None:
    (exchange,) = read(lines(tmp_path / "a.jsonl", {"path": "/x"} | record)).exchanges
    assert exchange.request.body == body
    assert (exchange.answer and len(exchange.answer.body)) == answer


@pytest.mark.parametrize("encoding", ["BASE64", "JSON", "CSV", None])
def test_data_capture(encoding: str | None, tmp_path: Path) -> None:
    text = json.dumps(BODY)
    data = base64_of(text.encode()) if encoding == "BASE64" else text
    part = {"observedContentType": "application/json", "data": data, "encoding": encoding}
    about = {"customAttributes": ["a=b"], "inferenceTime": "2026-11-26T10:00:00Z"}
    capture = {"endpointInput": part, "endpointOutput": part}
    folder = tmp_path / "2026" / "11"
    folder.mkdir(parents=True)
    lines(folder / "a.jsonl", {"captureData": capture, "eventMetadata": about})
    lines(folder / "b.jsonl", {"captureData": {"endpointInput": part}})
    first, second = read(tmp_path).exchanges
    assert (first.request.path, json.loads(first.request.body)) == ("/invocations", BODY)
    assert first.request.headers["x-amzn-sagemaker-custom-attributes"] == "a=b"
    assert first.answer is not None
    assert (first.answer.status, json.loads(first.answer.body)) == (None, BODY)
    assert second.answer is None


def test_data_capture_of_a_bucket(tmp_path: Path) -> None:
    capture = {"endpointInput": {"data": json.dumps(BODY), "encoding": "JSON"}}
    with s3_server() as bucket:
        line = json.dumps({"captureData": capture}).encode()
        bucket.objects["capture/2026/a.jsonl"] = line
        names = {"AWS_ENDPOINT_URL": bucket.url, "AWS_ACCESS_KEY_ID": "a"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (names | {"AWS_SECRET_ACCESS_KEY": "b"}).items():
                patch.setenv(name, value)
            environment = names | {"XDG_CACHE_HOME": str(tmp_path)}
            corpus = read_corpus(["s3://b/capture"], environment, say=print)
    assert [each.place for each in corpus.exchanges] == ["s3://b/capture/2026/a.jsonl:1"]


def har_entry(url: str, method: str = "POST", status: int = 200, **posted: Any) -> dict[str, Any]:
    headers = [{"name": ":authority", "value": "a"}, {"name": "Content-Encoding", "value": "gzip"}]
    content = {"text": base64_of(b"{}"), "encoding": "base64"}
    response = {"status": status, "headers": headers, "content": content}
    request = {"url": url, "method": method, "headers": headers}
    request |= {"postData": {"text": json.dumps(BODY)} | posted} if method == "POST" else {}
    started = "2026-11-26T10:00:00.000+00:00"
    return {"request": request, "response": response, "time": 250, "startedDateTime": started}


def test_a_har_file(tmp_path: Path) -> None:
    entries = [
        har_entry("https://a/v1/chat/completions?b=1", mimeType="application/json"),
        har_entry("https://a/v1/models", "GET"),
        har_entry("https://a/logo.png", "GET"),
        har_entry("https://a/v1/chat/completions", "OPTIONS"),
        # A path that is not served is what a migration must show.
        har_entry("https://a/own/path", status=0),
        "wrong",
    ]
    lines(tmp_path / "a.har", {"log": {"entries": entries}})
    corpus = read(tmp_path)
    chat, models, own = corpus.exchanges
    assert (chat.request.path, models.request.method) == ("/v1/chat/completions?b=1", "GET")
    assert chat.request.headers == {"content-type": "application/json"}
    assert chat.answer is not None
    assert (chat.answer.body, chat.answer.seconds, chat.answer.headers) == (
        b"{}",
        0.25,
        {":authority": "a"},
    )
    assert (own.request.client, own.answer) == ("none", None)
    assert corpus.skipped == 2
    (problem,) = corpus.problems
    assert problem == f"{tmp_path}/a.har: entry 6: is a text; accepted: an object"


def har(path: Path, request: dict[str, Any], response: dict[str, Any]) -> Corpus:
    entry = {"request": {"url": "https://a/generate", "method": "POST", **request}}
    entry["response"] = {"status": 200, **response}
    return read(lines(path / "a.har", {"log": {"entries": [entry]}}))


@pytest.mark.parametrize(
    ("text", "kind", "body"),
    [
        ("née 東京", "text/event-stream", "née 東京".encode()),
        # A browser reads a stream without a character set as Windows-1252.
        (READ_WRONGLY, "text/event-stream", b"n\xc3\xa9e \xe2\x82\xac \xc2\x9d"),
        ("née", "text/plain", "née".encode()),
        ("\0ÿ", "application/vnd.amazon.eventstream", b"\0\xff"),
    ],
)
def test_a_har_file_has_the_bytes_that_were_sent(
    text: str, kind: str, body: bytes, tmp_path: Path
) -> None:
    (found,) = har(tmp_path, {}, {"content": {"mimeType": kind, "text": text}}).exchanges
    assert found.answer is not None
    assert found.answer.body == body


@pytest.mark.parametrize(
    "response",
    [{"content": {"size": -1}}, {"content": {"size": 5}}, {"content": {}, "_failureText": "gone"}],
)
def test_an_answer_that_a_har_file_lacks_is_no_empty_one(
    response: dict[str, Any], tmp_path: Path
) -> None:
    (found,) = har(tmp_path, {}, response).exchanges
    assert found.answer is None
    (empty,) = har(tmp_path, {}, {"content": {"size": 0}}).exchanges
    assert empty.answer is not None


def test_a_request_that_a_har_file_lacks_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the file lacks the body of the request"):
        har(tmp_path, {"bodySize": 9}, {})


@pytest.mark.parametrize(("origin", "kept"), [("https://a", False), ("https://app", True)])
def test_a_page_of_the_old_server_is_one_of_the_new(
    origin: str, kept: bool, tmp_path: Path
) -> None:
    headers = [{"name": name, "value": origin} for name in ("Origin", "Referer")]
    (found,) = har(tmp_path, {"headers": headers}, {}).exchanges
    assert ("origin" in found.request.headers) is kept


def test_published_samples_of_sagemakers_data_capture() -> None:
    table, chat = read(TESTS / "data" / "captures" / "sagemaker.jsonl").exchanges
    assert table.request.headers == {"content-type": "text/csv"}
    assert chat.request.path == "/invocations"
    assert json.loads(chat.request.body)["max_tokens"] == 50
    for found in (table, chat):
        assert found.answer is not None
    assert table.answer is not None
    assert (table.answer.body, table.answer.media_type) == (b"30.4133586884", "text/csv")


@pytest.mark.parametrize("is_list", [False, True])
def test_a_record_may_be_written_on_several_lines(is_list: bool, tmp_path: Path) -> None:
    record = {"path": "/generate", "body": BODY}
    path = tmp_path / "a.json"
    path.write_text(json.dumps([record, record] if is_list else record, indent=1), encoding="utf-8")
    assert len(read(path).exchanges) == 1 + is_list


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ([], "is a list; accepted: an object"),
        ({"a": 1}, "has neither path nor captureData; it has a"),
        ({"path": 1}, "path is 1; accepted: a path such as /invocations"),
        ({"path": "a b"}, "path is 'a b'"),
        ({"path": "/a\r\nx: y"}, "path is"),
        ({"path": "http://[/"}, "is wrong"),
        ({"path": "/", "method": 1}, "method is 1"),
        ({"path": "/", "headers": {"a": "b\nc: d"}}, "headers.a has a line feed"),
        ({"path": "/", "headers": 1}, "headers is 1"),
        ({"path": "/", "headers": [1]}, "headers has a wrong member"),
        ({"path": "/", "body_base64": "?"}, "body_base64 is not base64"),
        ({"path": "/", "answer": {"status": "200"}}, "answer.status is a text"),
        ({"path": "/", "answer": {"events": [1]}}, "answer.events has a wrong one"),
        ({"captureData": 1}, "captureData is 1"),
        ({"captureData": {}}, "captureData has no endpointInput"),
        ({"captureData": {"endpointInput": {"data": 1}}}, "data is 1"),
    ],
)
def test_a_bad_line_is_said_with_its_place_and_counted(
    line: Any, message: str, tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl", {"path": "/"}, "", line, {"path": "/"})
    corpus = read(path)
    assert len(corpus.exchanges) == 2
    (problem,) = corpus.problems
    assert problem.startswith(f"{path}:3: ")
    assert message in problem


def test_nothing_to_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(ConfigurationError, match=r"no request can be read$"):
        read(tmp_path)
    with pytest.raises(ConfigurationError, match=r"the first of 1 problems: .*:1: is not JSON"):
        read(lines(tmp_path / "a.jsonl", "{"))
