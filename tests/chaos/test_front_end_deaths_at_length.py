"""Streams that are cut at each of their bytes, while front ends are killed again and again."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

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
GREEDY = {"model": "tiny", "max_tokens": 800, "temperature": 0, "stream": True}
LONG = GREEDY | {"ignore_eos": True}
STORY = [{"role": "user", "content": "Tell a story:"}]
PARAMETERS = {"max_new_tokens": 800, "do_sample": False, "ignore_eos_token": True}
BODIES: dict[str, dict[str, Any]] = {
    CHATS: LONG | {"messages": STORY},
    "/v1/completions": LONG | {"prompt": "Tell a story:"},
    "/v1/messages": GREEDY | {"messages": STORY},
    "/v1/responses": {"model": "tiny", "input": "Tell a story:", "temperature": 0, "stream": True},
    "/invocations": {
        "model": "tiny",
        "inputs": "Tell a story:",
        "stream": True,
        "parameters": PARAMETERS | {"output_formatter": "sse"},
    },
}


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


def _text(events: list[bytes]) -> tuple[int, str]:
    """Return how many events a stream has, and the text in all of them."""
    texts = []
    for event in events:
        line = event.partition(b"data: ")[2]
        answer: Any = json.loads(line) if line.startswith(b"{") else {}
        for choice in answer.get("choices", ()):
            texts.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
        delta = answer.get("delta", "")
        texts.append(delta if isinstance(delta, str) else delta.get("text") or "")
        texts.append(answer.get("token", {}).get("text") or "")
    return len(events), "".join(texts)


def test_streams_of_each_dialect_outlive_their_front_end(served: Served, report: Report) -> None:
    wait_for(lambda: served.ask("/ping")[0] == 200)
    bodies = {path: json.dumps(body).encode() for path, body in BODIES.items()}
    plain = {path: _text(follow(served.port, path, bodies[path]).events) for path in BODIES}
    assert all(len(text) > 100 for _, text in plain.values()), plain
    rounds, count, several = 4, 0, 0
    with ThreadPoolExecutor(len(BODIES)) as threads:

        def run(path: str) -> int:
            got = follow(served.port, path, bodies[path], 0.1, **RESUMABLE)
            assert _text(got.events)[1] == plain[path][1], path
            return got.connections

        for _ in range(rounds):
            results = [threads.submit(run, path) for path in BODIES]
            wait_for(lambda: served.metric("lmi_requests_open", "tiny") > 0)
            kill_front_end(served)
            several += sum(each.result() > 1 for each in results)
            count += len(results)
    assert several > count / 4
    report.note_front(
        f"the front end is killed {rounds} times, and with it streams of vLLM in "
        f"{len(BODIES)} dialects",
        f"their clients reconnect and have the same text: {count} of {count}",
    )
