"""Replay finds each planted fault, and none between a server and itself."""

import json
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.migrate.judge import Judge
from lmi_backend.migrate.kinds import Difference
from lmi_backend.migrate.records import RecordedAnswer, Request
from lmi_backend.migrate.running import Target
from tests.support.harm.planted_faults import FAULTS, HARMLESS, HEADERS, REQUESTS, Plant, Planted
from tests.support.run.places import TESTS
from tests.support.servers.serving import Served


def request(name: str) -> Request:
    path, body = REQUESTS[name]
    more = {"content-type": "application/json", **HEADERS.get(name, {})}
    return Request(path, json.dumps(body).encode(), "POST", more)


@pytest.fixture(scope="module")
def answers(ensemble_server: Served) -> dict[str, RecordedAnswer]:
    target = Target(f"http://{ensemble_server.front_end}")
    return {name: target.send(request(name)) for name in REQUESTS}


def differences(name: str, plant: Plant, answers: dict[str, RecordedAnswer]) -> list[Difference]:
    was = answers[name]
    assert was.status is not None
    planted = Planted(was.status, dict(was.headers), was.body)
    plant(planted)
    now = RecordedAnswer(planted.status, planted.headers, planted.body)
    return Judge().differences(request(name), was, now)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, answers: dict[str, RecordedAnswer]) -> None:
    of, kind, plant = FAULTS[name]
    assert kind in {each.kind for each in differences(of, plant, answers)}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_change_that_no_client_sees_is_no_difference(
    name: str, answers: dict[str, RecordedAnswer]
) -> None:
    assert differences(*HARMLESS[name], answers) == []


def test_a_server_does_not_differ_from_itself_and_its_record(
    ensemble_server: Served,
    answers: dict[str, RecordedAnswer],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, lines = f"http://{ensemble_server.front_end}", []
    for name, (path, body) in REQUESTS.items():
        answer = answers[name]
        if answer.body.isascii():
            own = {"status": answer.status, "headers": dict(answer.headers)}
            own["events"] = [[answer.seconds, answer.body.decode()]]
            lines.append({"path": path, "body": body, "answer": own})
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for against in ([], ["--against", url]):
        assert main(["replay", str(recorded), "--url", url, "--json", *against]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [(e["kind"], e["path"], e["was"], e["now"]) for e in report["differences"]] == []
        assert report["judged"] == len(REQUESTS) - 1
    # A header that the new server has nowhere.
    for line in lines:
        line["answer"]["headers"]["x-own"] = "1"
    recorded.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["replay", str(recorded), "--url", url, "--redact", "--allow", "50%"]) == 1
    output = capsys.readouterr().out
    assert "header  x-own  /invocations" in output
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
