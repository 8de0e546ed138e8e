"""Responses in the background whose front end is killed, again and again (`make chaos`).

LMI_BACKEND_TEST_KILLS says how often.
"""

import os
from typing import Any

from tests.chaos.test_front_end_death import RESPONSES, STORY, kill_front_end, response_of, text_of
from tests.support.measured import Report
from tests.support.serving import Served
from tests.support.waiting import wait_for

KILLS = int(os.environ.get("LMI_BACKEND_TEST_KILLS", "100"))
AT_ONCE = 4


def test_responses_in_the_background_outlive_their_front_ends(
    served: Served, report: Report
) -> None:
    wait_for(lambda: served.ask("/ping")[0] == 200)
    plain = text_of(response_of(served, "POST", RESPONSES, STORY))
    assert len(plain) > 100
    whole, cancelled, asked = 0, 0, STORY | {"background": True}

    def state(path: str) -> dict[str, Any]:
        return response_of(served, "GET", path)

    for number in range(KILLS):
        begun = [response_of(served, "POST", RESPONSES, asked) for _ in range(AT_ONCE)]
        kill_front_end(served)
        *others, last = (f"{RESPONSES}/{each['id']}" for each in begun)
        if number % 4 == 0:
            found = response_of(served, "POST", f"{last}/cancel")
            cancelled += found["status"] in ("cancelled", "completed")
            assert state(last)["status"] == found["status"]
        else:
            others.append(last)
        for path in others:
            wait_for(lambda path=path: state(path)["status"] != "in_progress")  # type: ignore[misc]
            found = state(path)
            whole += (found["status"], text_of(found)) == ("completed", plain)
            assert response_of(served, "DELETE", path)["deleted"] is True
            assert served.ask(path)[0] == 404
    assert whole + cancelled == KILLS * AT_ONCE
    wait_for(lambda: served.metric("lmi_requests_open", "tiny") == 0)
    report.note_front(
        f"the front end is killed {KILLS} times, each time with {AT_ONCE} responses of vLLM in the "
        "background",
        f"the next one finds them by their ids: {whole} of {whole} whole, {cancelled} cancelled, "
        "then deleted",
    )
