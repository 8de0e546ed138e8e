"""Replay finds each planted fault, and none between a server and itself."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.migrate.judge import Judge
from lmi_backend.migrate.records import RecordedExchange, Request
from lmi_backend.migrate.running import Replay, Target
from tests.support.places import TESTS
from tests.support.planted_faults import FAULTS, HARMLESS, HEADER, HEADERS, REQUESTS, faulty_proxy
from tests.support.serving import Served


@pytest.fixture(scope="module")
def proxy(ensemble_server: Served) -> Iterator[str]:
    plants = {name: plant for name, (*_, plant) in (FAULTS | HARMLESS).items()}
    with faulty_proxy(ensemble_server.front_end, plants) as url:
        yield url


def exchange(request: str, **headers: str) -> RecordedExchange:
    path, body = REQUESTS[request]
    data = json.dumps(body).encode()
    more = {"content-type": "application/json", **HEADERS.get(request, {}), **headers}
    return RecordedExchange(Request(path, data, "POST", more), None, request)


@pytest.fixture(scope="module")
def replay(ensemble_server: Served, proxy: str) -> Replay:
    return Replay(Target(proxy), Judge(), Target(f"http://{ensemble_server.front_end}"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, replay: Replay) -> None:
    request, kind, _ = FAULTS[name]
    differences = replay.one(exchange(request, **{HEADER: name})).differences
    assert kind in {each.kind for each in differences}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_change_that_no_client_sees_is_no_difference(name: str, replay: Replay) -> None:
    request, _ = HARMLESS[name]
    assert replay.one(exchange(request, **{HEADER: name})).differences == []


def test_a_server_does_not_differ_from_itself_and_its_record(
    ensemble_server: Served, proxy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://{ensemble_server.front_end}"
    recorded = tmp_path / "recorded.jsonl"
    lines = []
    for name, (path, body) in REQUESTS.items():
        answer = Target(url).send(exchange(name).request)
        events = [[answer.seconds, answer.body.decode("latin-1")]]
        own_answer = {"status": answer.status, "headers": dict(answer.headers), "events": events}
        lines.append(
            {"path": path, "body": body, "answer": own_answer} if answer.body.isascii() else {}
        )
    recorded.write_text("".join(f"{json.dumps(line)}\n" for line in lines if line))
    for against in ([], ["--against", url]):
        assert main(["replay", str(recorded), "--url", url, "--json", *against]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [(e["kind"], e["path"], e["was"], e["now"]) for e in report["differences"]] == []
        assert report["judged"] == len(REQUESTS) - 1
    # A fault of the whole server is found in the record alone, and nothing is sent twice.
    words = ["--header", f"{HEADER}:a header gone", "--allow", "50%"]
    assert main(["replay", str(recorded), "--url", proxy, "--redact", *words]) == 1
    output = capsys.readouterr().out
    assert "header  x-request-id  /invocations" in output
    assert "one two" not in output


@pytest.mark.parametrize(("name", "judged"), [("chromium.har", 9), ("mitmproxy.har", 3)])
def test_what_other_programs_recorded_shows_no_difference(
    name: str, judged: int, ensemble_server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(TESTS / "data/captures" / name), "--json"]
    status = main([*words, "--url", f"http://{ensemble_server.front_end}"])
    report = json.loads(capsys.readouterr().out)
    assert [(e["kind"], e["path"], e["was"], e["now"]) for e in report["differences"]] == []
    assert (status, report["judged"], report["problems"]) == (0, judged, [])
