"""Responses in the background whose front end is killed, again and again (`make chaos`)."""

import http.client
import json
from typing import Any

from tests.chaos.test_front_end_death import kill_front_end
from tests.support.chaos_report import Report
from tests.support.cutting_proxy import follow
from tests.support.serving import Served
from tests.support.waiting import wait_for

PATH = "/v1/responses"
KILLS = 100
AT_ONCE = 4
BODY: dict[str, Any] = {"model": "tiny", "input": "Tell a story:", "temperature": 0}


def _text(response: dict[str, Any]) -> str:
    """Return all texts of a response."""
    parts = [part for item in response["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts)


def _ask(served: Served, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Return the answer to a request, which is sent again while there is no front end."""
    found: dict[str, Any] = {}

    def has_answered() -> bool:
        data = None if body is None else json.dumps(body).encode()
        try:
            status, _, text = served.ask(path, data, method=method)
        except (OSError, http.client.HTTPException):
            return False
        assert status == 200, text
        found.update(json.loads(text))
        return True

    wait_for(has_answered)
    return found


def test_responses_in_the_background_outlive_their_front_ends(
    served: Served, report: Report
) -> None:
    wait_for(lambda: served.ask("/ping")[0] == 200)
    plain = _text(_ask(served, "POST", PATH, BODY))
    assert len(plain) > 100
    whole = cancelled = 0
    for number in range(KILLS):
        begun = [_ask(served, "POST", PATH, BODY | {"background": True}) for _ in range(AT_ONCE)]
        kill_front_end(served)
        *others, last = (f"{PATH}/{each['id']}" for each in begun)
        if number % 4 == 0:
            state = _ask(served, "POST", f"{last}/cancel")
            cancelled += state["status"] in ("cancelled", "completed")
            assert _ask(served, "GET", last)["status"] == state["status"]
        else:
            others.append(last)
        for path in others:
            wait_for(lambda path=path: _ask(served, "GET", path)["status"] != "in_progress")  # type: ignore[misc]
            state = _ask(served, "GET", path)
            whole += (state["status"], _text(state)) == ("completed", plain)
            assert _ask(served, "DELETE", path)["deleted"] is True
            assert served.ask(path)[0] == 404
    assert whole + cancelled == KILLS * AT_ONCE
    wait_for(lambda: served.metric("lmi_requests_open", "tiny") == 0)
    report.note_front(
        f"the front end is killed {KILLS} times, each time with {AT_ONCE} responses of vLLM in the "
        "background",
        f"the next one finds them by their ids: {whole} of {whole} whole, {cancelled} cancelled, "
        "then deleted",
    )


def test_a_response_is_followed_over_its_front_end(served: Served) -> None:
    """`starting_after`, from the next front end."""
    body = json.dumps(BODY | {"stream": True}).encode()
    events = follow(served.port, PATH, body).events
    begun = _ask(served, "POST", PATH, BODY | {"background": True})
    kill_front_end(served)
    path = f"{PATH}/{begun['id']}"
    wait_for(lambda: _ask(served, "GET", path)["status"] == "completed")
    for after in (-1, 0, len(events) // 2, len(events) - 2):
        status, _, data = served.ask(f"{path}?stream=true&starting_after={after}")
        numbers = [
            json.loads(line[6:])["sequence_number"]
            for line in data.splitlines()
            if line.startswith(b"data: {")
        ]
        assert (status, numbers) == (200, list(range(after + 1, len(events))))
