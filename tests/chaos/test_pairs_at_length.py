"""A second fault while the first one is being repaired, under streams whose clients reconnect."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import psutil
import pytest

from lmi_backend.ipc.messages import NOT_BUFFERED
from tests.chaos.test_front_end import CHATS, RESUMABLE
from tests.support.doubles.cutting_proxy import follow
from tests.support.records.measured import Report
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

STREAMS, TOKENS = 8, 300
DELAYS = (0.0, 0.3, 1.0, 3.0)
BODY = json.dumps(
    {
        "model": "echo",
        "messages": [{"role": "user", "content": "a b c d"}],
        "max_tokens": TOKENS,
        "stream": True,
    }
).encode()


def _named(name: str) -> Callable[[Served], list[psutil.Process]]:
    return lambda served: [each for each in served.family() if name in each.name()]


FAULTS: dict[str, Callable[[Served], list[psutil.Process]]] = {
    "worker": lambda served: served.workers("echo"),
    "stub": _named("triton_python"),
    "tritonserver": _named("tritonserver"),
    "front end": Served.front_ends,
}
KEEPERS = {"stub", "tritonserver"}
"""Without these and without a front end nobody has an answer."""


def _kill(served: Served, name: str) -> None:
    for process in FAULTS[name](served):
        process.kill()


@pytest.mark.parametrize(("first", "second"), [*product(FAULTS, repeat=2)])
def test_a_fault_within_the_recovery_of_another(
    echo: Served, report: Report, first: str, second: str
) -> None:
    may_lose = "front end" in (first, second) and not KEEPERS.isdisjoint((first, second))
    wait_for(lambda: echo.ask("/ping")[0] == 200)
    plain = _text(follow(echo.port, CHATS, BODY).events)
    seen = Counter[str]()
    with ThreadPoolExecutor(STREAMS) as threads:
        for delay in DELAYS:
            wait_for(lambda: echo.ask("/ping")[0] == 200)
            before = echo.metric("lmi_generation_tokens_total", "echo")

            def run(_: int) -> str:
                try:
                    got = follow(echo.port, CHATS, BODY, 0.1, **RESUMABLE)
                except AssertionError as error:
                    return "lost" if NOT_BUFFERED in str(error) else str(error)
                return "whole" if (text := _text(got.events)) == plain else text

            results = threads.map(run, range(STREAMS))
            wait_for(
                lambda n=before: (
                    echo.metric("lmi_generation_tokens_total", "echo")  # type: ignore[misc]
                    > n + STREAMS * 20
                )
            )
            _kill(echo, first)
            time.sleep(delay)
            _kill(echo, second)
            seen.update(results)
    assert seen.keys() <= ({"whole", "lost"} if may_lose else {"whole"}), seen
    delays = ", ".join(f"{delay:g}" for delay in DELAYS)
    report.note_front(
        f"{first}, then {second} {delays} s later, killed under {STREAMS} streams each",
        f"whole: {seen['whole']} of {STREAMS * len(DELAYS)}"
        + (f"; 404 that names the cause: {seen['lost']}" if may_lose else ""),
    )


def _text(events: list[bytes]) -> str:
    """Return what a stream says, and how many answers it is of."""
    *parts, done = [event.partition(b"data: ")[2] for event in events]
    chunks = [json.loads(part) for part in parts]
    names = {(each["id"], each["created"]) for each in chunks}
    texts = [each["choices"][0]["delta"].get("content") or "" for each in chunks]
    return f"{len(names)}: {''.join(texts)} {done!r}"
