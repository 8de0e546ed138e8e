"""Requests of a real worker that is killed, hangs or ends: they go on, unseen by their clients."""

import json
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.service import renew_worker
from tests.support.servers.harness import Harness, RecordingSink

Start = Callable[..., AbstractContextManager[Harness]]
ECHO = {"option.rolling_batch": "echo", "option.openai": "true", "option.token_seconds": 0.01}
TWO = {"minWorkers": 2, "maxWorkers": 2, "option.parallel_loading": "true"}
STREAMS = 16
TOKENS = 100
PROMPT = "one two three "


def chat(tokens: int, **more: Any) -> HttpRequest:
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens}
    return HttpRequest("/v1/chat/completions", json.dumps(body | more).encode())


def events(sink: RecordingSink) -> list[Any]:
    """Return what the events of a stream hold; the last of them says that it is done."""
    *lines, done, rest = sink.data.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("workers", [{}, TWO], ids=["one worker", "two workers"])
def test_a_killed_worker_costs_a_pause(start: Start, workers: dict[str, Any]) -> None:
    with start(ECHO | workers) as echo:
        plain = [echo.start(PROMPT, max_tokens=TOKENS) for _ in range(STREAMS)]
        whole = [echo.start(PROMPT, max_tokens=TOKENS, stream=False) for _ in range(4)]
        chats = [echo.submit(chat(TOKENS, stream=True)) for _ in range(STREAMS)]
        for sink in (*plain, *chats):
            sink.wait_first()
        echo.workers[0].send_signal(signal.SIGKILL)
        # One that comes now waits.
        late = echo.start(PROMPT, max_tokens=3)
        words = ["one", " two", " three", " "]
        text = "".join(words[index % 4] for index in range(TOKENS))
        for sink in (*plain, *whole):
            assert (sink.wait().error, sink.text) == (None, text)
            assert sum(delta.num_tokens for delta in sink.deltas) == TOKENS
            assert (sink.deltas[-1].finish_reason, sink.deltas[-1].num_prompt_tokens) == (
                "length",
                4,
            )
        for sink in chats:
            assert sink.wait().error is None
            found = events(sink)
            assert "".join(each["choices"][0]["delta"]["content"] for each in found) == text
            assert len({(each["id"], each["created"]) for each in found}) == 1
            assert [each["usage"]["completion_tokens"] for each in found] == [*range(1, TOKENS + 1)]
        assert late.wait().text == "one two three"
        now = echo.service.snapshot()
        assert now.moved >= STREAMS
        assert now.generation_tokens == (len(plain) + len(whole) + len(chats)) * TOKENS + 3


def test_a_request_that_ends_its_worker_each_time_ends_alone(start: Start) -> None:
    with start(ECHO | {"option.die_on": "die"}) as echo:
        others = [echo.start(PROMPT, max_tokens=TOKENS).wait_first() for _ in range(STREAMS)]
        error = echo.ask("die").error
        assert isinstance(error, EngineDeadError)
        assert str(error) == (
            "the echo engine was told to die; it was in each of 2 deaths of a worker, and is not "
            "resumed"
        )
        assert [other.wait().error for other in others] == [None] * STREAMS
        assert [worker.deaths for worker in echo.service.snapshot().workers] == [2]


def several(echo: Harness, tokens: int) -> RecordingSink:
    """Start what cannot go on once it has begun: two answers."""
    request = GenerateRequest(PROMPT, Sampling(tokens), n=2)
    return echo.submit([request]).wait_first()


def test_a_worker_is_started_anew_while_its_requests_go_on(start: Start) -> None:
    with start(ECHO) as echo:
        renew = partial(renew_worker, echo.service, echo.pool, 60)  # type: ignore[arg-type]
        (before,) = echo.workers
        plain = [echo.start(PROMPT, max_tokens=TOKENS).wait_first() for _ in range(STREAMS)]
        chats = [echo.submit(chat(TOKENS, stream=True)).wait_first() for _ in range(STREAMS)]
        two = several(echo, 30)
        # That one may end first.
        assert renew(0, 30) == msg.Done()
        assert two.wait().error is None
        assert sum(delta.num_tokens for delta in two.deltas) == 2 * 30
        (after,) = echo.workers
        assert after.pid != before.pid
        for sink in (*plain, *chats):
            assert sink.wait().error is None
            assert sum(chunk.num_tokens for chunk in sink.deltas) == TOKENS
        assert [worker.deaths for worker in echo.service.snapshot().workers] == [0]
        late = several(echo, 4000)
        assert renew(0, 0.1) == msg.Done(cut=1)
        assert str(late.wait().error) == "worker 0 is restarted, and waits no longer"
        assert "accepted: 0" in renew(1, 1).problem
