"""Outputs of a request are taken in the thread of the event loop, in their order."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths, output_hook


class Engine:
    """An AsyncLLM of one request, whose outputs another thread makes."""

    errored = False

    def __init__(self) -> None:
        self.state = SimpleNamespace(
            make_request_output=self._make, detokenizer=SimpleNamespace(stop=["x"])
        )
        self.output_processor = SimpleNamespace(request_states={"a": self.state})
        self.queue = SimpleNamespace(put=None, get_nowait=lambda: None)

    @staticmethod
    def _make(ids: Any, _: Any, reason: Any, *more: Any) -> Any:
        return SimpleNamespace(ids=ids, finished=reason is not None)

    async def add_request(self, **_: Any) -> Any:
        self.task = asyncio.create_task(asyncio.to_thread(self._run))
        return self.queue

    def _run(self) -> None:
        while self.queue.put is None:
            time.sleep(0.001)
        for token in range(9):
            reason = "stop" if token == 8 else None
            self.queue.put(self.state.make_request_output([token], None, reason))


class Reader:
    is_whole, wants_tokens = False, False

    @staticmethod
    def deltas(output: Any) -> list[Any]:
        return [output.ids]


async def test_outputs_of_another_thread_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    taken: list[Any] = []

    def take(delta: Any) -> None:
        asyncio.get_running_loop()
        taken.append(delta)

    sink: Any = SimpleNamespace(take=take, defer=lambda *_: True)
    arguments = {"request_id": "a", "params": SimpleNamespace(n=1)}
    reader: Any = Reader
    await asyncio.wait_for(output_hook.generate(Engine(), arguments, reader, sink), 20)
    assert taken == [[token] for token in range(9)]
    assert "another thread" in fast_paths.states()["output_hook"]


@pytest.mark.parametrize("num_good", [3, 0])
async def test_all_outputs_that_came_before_the_hook_are_taken(
    num_good: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release may keep them one by one. What is no output fails the request, and is not asked."""
    monkeypatch.setattr(fast_paths, "_off", {})
    waiting = [SimpleNamespace(ids=[token], finished=token == 2) for token in range(num_good)]
    engine, taken = Engine(), list[Any]()
    monkeypatch.setattr(engine, "_run", lambda: None)
    engine.queue.get_nowait = lambda: waiting.pop(0) if waiting else (None,)
    aborted: list[Any] = []
    monkeypatch.setattr(output_hook.compat, "abort", _noting(aborted))
    sink: Any = SimpleNamespace(take=taken.append, defer=lambda *_: False)
    arguments = {"request_id": "a", "params": SimpleNamespace(n=1)}
    reader: Any = Reader
    answering = output_hook.generate(engine, arguments, reader, sink)
    if num_good:
        await asyncio.wait_for(answering, 20)
    else:
        with pytest.raises(AttributeError):
            await asyncio.wait_for(answering, 20)
    assert (taken, len(aborted)) == ([[token] for token in range(num_good)], not num_good)


def _noting(calls: list[Any]) -> Any:
    async def note(*given: Any) -> None:
        calls.append(given)

    return note
