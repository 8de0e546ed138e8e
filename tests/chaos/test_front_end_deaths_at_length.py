"""Streams that are cut at each of their bytes, while front ends are killed again and again."""

import json
from concurrent.futures import Future, ThreadPoolExecutor

from tests.chaos.test_front_end import CHATS, RESUMABLE, text_of_chat
from tests.chaos.test_front_end_death import kill_front_end
from tests.support.chaos_report import Report
from tests.support.cutting_proxy import CuttingProxy, follow
from tests.support.serving import Served
from tests.support.waiting import wait_for

CUTS = 1000
AT_ONCE = 24
EVERY = 40
"""Streams from one death to the next. A front end that dies more often is started ever later."""


def test_streams_that_are_cut_while_their_front_ends_die(echo: Served, report: Report) -> None:
    wait_for(lambda: echo.ask("/ping")[0] == 200)
    chat = {"messages": [{"role": "user", "content": "a b c"}], "max_tokens": 30, "stream": True}
    body = json.dumps(chat | {"model": "echo"}).encode()
    deaths = 0
    with CuttingProxy(echo.port).run() as proxy, ThreadPoolExecutor(AT_ONCE) as threads:
        plain = text_of_chat(follow(echo.port, CHATS, body).events)
        assert text_of_chat(follow(proxy.port, CHATS, body, **RESUMABLE).events) == plain != ""
        size = proxy.passed

        def cut(number: int) -> bool:
            place, mark = number * (size - 5) // CUTS, f"cut-{number}."
            proxy.cuts[mark.encode()] = place
            got = follow(proxy.port, CHATS, body, 0.2 + number % 3 / 5, **RESUMABLE, mark=mark)
            return text_of_chat(got.events) == plain and got.connections > 1

        results = [threads.submit(cut, number) for number in range(CUTS)]
        for number in range(EVERY, CUTS, EVERY):
            wait_for(lambda number=number: sum(map(Future.done, results)) >= number, 300)  # type: ignore[misc]
            kill_front_end(echo)
            deaths += 1
        whole = sum(each.result() for each in results)
    assert whole == CUTS
    report.note_front(
        f"the connection of a stream is cut, at {CUTS} bytes of it in turn, and the front end is "
        f"killed {deaths} times meanwhile",
        f"its client reconnects and has the same text: {whole} of {CUTS}",
    )
