"""Streams whose clients lose their connection while the process behind it is killed."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from lmi_backend.ipc.buffered import NOT_BUFFERED
from tests.chaos.test_front_end import CHATS, RESUMABLE, text_of_chat
from tests.support.cutting_proxy import CuttingProxy, follow
from tests.support.measured import Report
from tests.support.serving import Served
from tests.support.waiting import wait_for

STREAMS = 16
CHAT = {"messages": [{"role": "user", "content": "a b c d"}], "max_tokens": 150, "stream": True}


def _worker(served: Served) -> psutil.Process:
    return served.workers("echo")[-1]


def _named(word: str) -> Callable[[Served], psutil.Process]:
    return lambda served: next(each for each in served.family() if word in each.name())


@pytest.mark.parametrize(
    ("what", "victim"),
    [
        ("a worker", _worker),
        ("a stub", _named("triton_python")),
        ("tritonserver", _named("tritonserver")),
    ],
)
def test_a_client_reconnects_while_a_process_is_killed(
    echo: Served, report: Report, what: str, victim: Callable[[Served], psutil.Process]
) -> None:
    wait_for(lambda: echo.ask("/ping")[0] == 200)
    body = json.dumps(CHAT | {"model": "echo"}).encode()
    plain = text_of_chat(follow(echo.port, CHATS, body).events)
    with CuttingProxy(echo.port).run() as proxy, ThreadPoolExecutor(STREAMS) as threads:

        def cut(number: int) -> bool:
            mark = f"cut-{number}."
            proxy.cuts[mark.encode()] = 2000 + number * 700
            try:
                got = follow(proxy.port, CHATS, body, number % 4 / 4, **RESUMABLE, mark=mark)
            except AssertionError as error:
                # The stub has the only log: who is away while it dies has nothing.
                if what == "a worker" or NOT_BUFFERED not in str(error):
                    raise
                return False
            assert (text_of_chat(got.events), got.connections) == (plain, 2)
            return True

        results = threads.map(cut, range(STREAMS))
        # Some are cut already, the others are not yet.
        wait_for(lambda: not proxy.cuts and proxy.passed > 4000)
        victim(echo).kill()
        whole = sum(results)
    assert whole == STREAMS or what != "a worker"
    away = STREAMS - whole
    report.note_front(
        f"{what} is killed while the connections of {STREAMS} streams are cut",
        f"their clients reconnect and have the same text: {whole} of {STREAMS}"
        + (f"; {away} that were away then get 404, which names this cause" if away else ""),
    )
