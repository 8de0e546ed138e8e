"""Streams that are cut at each of their bytes, while front ends are killed again and again.

LMI_BACKEND_TEST_PART=2/5 does the third of five parts of the cuts.
"""

import json
import os
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.chaos.test_front_end import CHATS, RESUMABLE
from tests.chaos.test_front_end_death import kill_front_end, short_bodies
from tests.support.doubles.cutting_proxy import CuttingProxy, follow
from tests.support.records.measured import Report
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

CUTS = 1000
PART, PARTS = map(int, os.environ.get("LMI_BACKEND_TEST_PART", "0/1").split("/"))
NUMBERS = range(PART, CUTS, PARTS)
AT_ONCE = 24
EVERY = 40
"""Streams from one death to the next. A front end that dies more often is started ever later."""
GREEDY = {"model": "tiny", "max_tokens": 12, "temperature": 0, "stream": True}
STORY = [{"role": "user", "content": "Tell a story:"}]
LMI: dict[str, Any] = {"model": "tiny", "inputs": "Tell a story:"}
FEW = {"max_new_tokens": 12, "do_sample": False}
BODIES: dict[str, dict[str, Any]] = {
    CHATS: GREEDY | {"messages": STORY, "ignore_eos": True},
    "/v1/completions": GREEDY | {"prompt": "Tell a story:", "ignore_eos": True},
    "/v1/messages": GREEDY | {"messages": STORY},
    "/v1/responses": {
        "model": "tiny", "input": "Tell a story:", "max_output_tokens": 12, "temperature": 0,
        "stream": True,
    },
    "/invocations": LMI
    | {
        "stream": True,
        "parameters": FEW | {"ignore_eos_token": True, "output_formatter": "sse"},
    },
    "/generate_stream": LMI | {"parameters": FEW},
}  # fmt: skip


def _text(events: list[bytes]) -> tuple[int, str]:
    """Return how many events a stream has, and the text in all of them."""
    texts = []
    for event in events:
        line = event.partition(b"data:")[2].lstrip()
        answer: Any = json.loads(line) if line.startswith(b"{") else {}
        for choice in answer.get("choices", ()):
            texts.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
        delta = answer.get("delta", "")
        texts.append(delta if isinstance(delta, str) else delta.get("text") or "")
        texts.append(answer.get("token", {}).get("text") or "")
    return len(events), "".join(texts)


def _cut_all(served: Served, bodies: dict[str, bytes]) -> tuple[int, int]:
    """Cut streams of each path at each of their bytes; return how many are whole, and the deaths.

    The front end is killed after every `EVERY` of them. vLLM puts several tokens into one event
    while it is busy: such a stream is shorter than the one that was measured, and may not be cut.
    """
    wait_for(lambda: served.ask("/ping")[0] == 200)
    deaths, of_a_path = 0, CUTS // len(bodies)
    with CuttingProxy(served.port).run() as proxy, ThreadPoolExecutor(AT_ONCE) as threads:
        plain, sizes = {}, {}
        for path, body in bodies.items():
            plain[path] = _text(follow(served.port, path, body).events)[1]
            got = follow(proxy.port, path, body, **RESUMABLE)
            sizes[path] = proxy.passed
            assert _text(got.events)[1] == plain[path] != "", path

        def cut(number: int) -> tuple[str, bool, bool]:
            path = list(bodies)[number % len(bodies)]
            place, mark = number // len(bodies) * (sizes[path] - 5) // of_a_path, f"cut-{number}."
            proxy.cuts[mark.encode()] = place
            pause = 0.2 + number % 3 / 5
            got = follow(proxy.port, path, bodies[path], pause, **RESUMABLE, mark=mark)
            return path, _text(got.events)[1] == plain[path], got.connections > 1

        results = [threads.submit(cut, number) for number in NUMBERS]
        for number in range(EVERY, len(NUMBERS), EVERY):
            wait_for(lambda number=number: sum(map(Future.done, results)) >= number, 300)  # type: ignore[misc]
            kill_front_end(served)
            deaths += 1
        found = Counter(each.result() for each in results)
    paths, num_cut = Counter[str](), Counter[str]()
    for (path, is_whole, is_cut), count in found.items():
        paths[path] += count * is_whole
        num_cut[path] += count * is_cut
    assert all(num_cut[path] > len(NUMBERS) / len(bodies) / 2 for path in bodies), found
    return paths.total(), deaths


def _note(report: Report, what: str, whole: int, deaths: int) -> None:
    report.note_front(
        f"the connection of a stream is cut, at {len(NUMBERS)} bytes of {what} in turn, and the "
        f"front end is killed {deaths} times",
        f"its client reconnects and has the same text: {whole} of {len(NUMBERS)}",
    )


def test_streams_that_are_cut_while_their_front_ends_die(echo: Served, report: Report) -> None:
    bodies = short_bodies(30)
    whole, deaths = _cut_all(echo, bodies)
    assert whole == len(NUMBERS)
    _note(report, f"{len(bodies)} dialects", whole, deaths)


def test_streams_of_vllm_that_are_cut_while_their_front_ends_die(
    served: Served, report: Report
) -> None:
    bodies = {path: json.dumps(body).encode() for path, body in BODIES.items()}
    whole, deaths = _cut_all(served, bodies)
    assert whole == len(NUMBERS)
    _note(report, f"{len(bodies)} dialects of vLLM", whole, deaths)
