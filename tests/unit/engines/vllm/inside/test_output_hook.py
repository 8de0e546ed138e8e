"""Outputs of a request are taken in the thread of the event loop, in their order."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import compat, fast_paths, output_hook
from tests.support.waiting import HANG_SECONDS, wait_for


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
        wait_for(lambda: self.queue.put)
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
    await asyncio.wait_for(output_hook.generate(Engine(), arguments, reader, sink), HANG_SECONDS)
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
    monkeypatch.setattr(compat, "abort", _noting(aborted))
    sink: Any = SimpleNamespace(take=taken.append, defer=lambda *_: False)
    arguments = {"request_id": "a", "params": SimpleNamespace(n=1)}
    reader: Any = Reader
    answering = output_hook.generate(engine, arguments, reader, sink)
    if num_good:
        await asyncio.wait_for(answering, HANG_SECONDS)
    else:
        with pytest.raises(AttributeError):
            await asyncio.wait_for(answering, HANG_SECONDS)
    assert (taken, len(aborted)) == ([[token] for token in range(num_good)], not num_good)


async def test_a_hook_that_fails_takes_nothing_of_the_request_that_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The public way answers from the beginning; the end of the first try is not the answer's."""
    monkeypatch.setattr(fast_paths, "_off", {})

    class _Public(Engine):
        async def abort(self, _: str) -> None:
            # As vLLM's: an abort makes a last output, without tokens.
            self.queue.put(self.state.make_request_output([], None, "abort"))

        async def generate(self, **_: Any) -> Any:
            for token in range(3):
                yield SimpleNamespace(ids=[token], finished=token == 2)

    def fail(state: Any) -> None:
        raise RuntimeError("a release without it")

    engine, taken = _Public(), list[Any]()
    monkeypatch.setattr(engine, "_run", lambda: None)
    monkeypatch.setattr(compat, "may_take_interval", fail)
    sink: Any = SimpleNamespace(take=taken.append, defer=lambda *_: False)
    arguments = {"request_id": "a", "params": SimpleNamespace(n=1)}
    reader: Any = Reader
    await asyncio.wait_for(output_hook.generate(engine, arguments, reader, sink), HANG_SECONDS)
    assert taken == [[0], [1], [2]]
    assert "a release without it" in fast_paths.states()["output_hook"]


def _noting(calls: list[Any]) -> Any:
    async def note(*given: Any) -> None:
        calls.append(given)

    return note


class Interval:
    """The sink and the reader of a request whose outputs have four tokens each, in vLLM."""

    is_whole, wants_tokens = False, False

    def __init__(self, *stop: str, defers: bool = False) -> None:
        self.decoded: list[int] = []
        self.taken: list[Any] = []
        self.asked: list[int] = []
        self._defers = defers
        detokenizer = SimpleNamespace(
            stop=[*stop],
            output_token_ids=self.decoded,
            update=lambda ids, _: self.decoded.extend(ids),
            get_next_output_text=lambda **_: "read",
        )
        self.state = SimpleNamespace(
            detokenizer=detokenizer,
            stream_interval=4,
            sent_tokens_offset=0,
            make_request_output=Engine._make,
        )
        self.hook = output_hook._OutputHook(self, self)
        self.hook.attach(self.state)
        self._reader: Any = getattr(self.state, "lmi_token_reader", None)

    def take(self, delta: Any) -> None:
        self.taken.append(delta)

    def defer(self, flush: Any, num_tokens: int) -> bool:
        self.asked.append(num_tokens)
        return self._defers

    @staticmethod
    def deltas(output: Any) -> list[Any]:
        return [output.ids]

    @staticmethod
    def of_new_tokens(text: str, ids: Any, *_: Any) -> Any:
        assert text == "read"
        return list(ids)

    def step(self, token: int, reason: str | None = None) -> None:
        """Do what vLLM's processor does with a token, or what is done before it."""
        may_take = self._reader is not None and token and reason is None
        if may_take and self._reader.take([token], None):
            return
        if self._reader is not None:
            self._reader.settle()
        self.decoded.append(token)
        output = self.state.make_request_output([token], None, reason)
        if output is not None:
            self.hook.put(output)


@pytest.mark.parametrize("stop", [(), ("x",)])
async def test_a_delta_of_the_middle_has_as_many_tokens_as_vllm_gives_it(
    stop: tuple[str, ...],
) -> None:
    asked = Interval(*stop)
    for token in range(10):
        asked.step(token, "stop" if token == 9 else None)
    assert asked.taken == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]
    # Nobody is asked whether fewer may wait.
    assert asked.asked == [1, 4, 4]
    assert asked.decoded == [*range(10)]
    assert asked.hook.ended.done()


async def test_what_is_left_of_an_interval_comes_with_the_end() -> None:
    asked = Interval()
    for token in range(8):
        asked.step(token, "stop" if token == 7 else None)
    assert asked.taken == [[0], [1, 2, 3, 4], [5, 6, 7]]
    assert asked.decoded == [*range(8)]


async def test_what_vllm_must_see_in_the_middle_ends_no_interval() -> None:
    asked = Interval()
    for token in range(3):
        asked.step(token)
    asked.hook.settle()
    asked.decoded.append(3)
    assert asked.state.make_request_output([3], None, None) is None
    for token in range(4, 9):
        asked.step(token)
    assert asked.taken == [[0], [1, 2, 3, 4], [5, 6, 7, 8]]
    assert asked.decoded == [*range(9)]


@pytest.mark.parametrize("interval", [None, "4", 0])
async def test_an_interval_that_cannot_be_read_stays_vllms(interval: Any) -> None:
    asked = Interval()
    state = SimpleNamespace(**vars(asked.state) | {"stream_interval": interval})
    output_hook._OutputHook(asked, asked).attach(state)
    assert state.stream_interval == interval


async def test_an_interval_that_this_vllm_failed_with_in_a_trial_stays_vllms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {"plain_stream": "it was tried"})
    asked = Interval()
    state = SimpleNamespace(**vars(asked.state) | {"stream_interval": 4})
    output_hook._OutputHook(asked, asked).attach(state)
    assert state.stream_interval == 4
