"""A restart of the front end: the old one serves until the next one does, whatever happens."""

import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lmi_backend.errors import ConnectionLostError, UnavailableError
from lmi_backend.front_end_settings import Settings
from lmi_backend.ipc.frames import FrameDecoder, encode, receive
from lmi_backend.supervisor import front_end as module
from lmi_backend.supervisor import front_end_restart
from lmi_backend.supervisor.front_end import FrontEnds
from lmi_backend.supervisor.front_end_order import (
    MESSAGE_BYTES,
    Answer,
    Ended,
    InService,
    Order,
    order_address,
    restart_front_ends,
)
from lmi_backend.supervisor.front_end_restart import LEAVE
from tests.support.ports import free_ports
from tests.support.waiting import HANG_SECONDS


class Process:
    """In the place of a front end, which does what the test says."""

    made: ClassVar[list["Process"]] = []
    age = 60.0

    def __init__(self, *_: Any, takes_over: bool = False) -> None:
        self.takes_over = takes_over
        self.is_running, self.serves = True, not takes_over
        self.signals: list[signal.Signals] = []
        self.made.append(self)

    def problem(self) -> str:
        return "" if self.is_running else "was killed"

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def stop(self) -> None:
        self.is_running = False


class Bench:
    """Front ends that a test looks at in turn, and commands."""

    def __init__(self, base: Path, processes: int) -> None:
        self.base, self._processes = base, processes
        self.commands: list[socket.socket] = []

    @property
    def made(self) -> list[Process]:
        return Process.made

    def run(self, *steps: Callable[[], object]) -> None:
        """Take a step before each look, of which the last is the end."""
        left = list(steps)

        def wait_for_end(_: float) -> bool:
            if left:
                left.pop(0)()
            return not left

        settings = Settings(base=self.base, port=free_ports(1)[0], processes=self._processes)
        FrontEnds(settings).keep(wait_for_end, 60, lambda: True)

    def order(self, seconds: float = 60) -> None:
        command = socket.socket(socket.AF_UNIX)
        command.connect(str(order_address(self.base, os.getpid())))
        command.sendall(encode([Order(seconds)]))
        command.settimeout(HANG_SECONDS)
        self.commands.append(command)

    def answers(self, number: int = 0) -> list[Answer]:
        """Return all that a command is told, when it is told no more."""
        decoder: FrameDecoder[Answer] = FrameDecoder(Answer, limit=MESSAGE_BYTES)
        found: list[Answer] = []
        with contextlib.suppress(ConnectionLostError):
            while True:
                found += receive(self.commands[number], decoder)
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.setattr(module, "BeatingProcess", Process)
    monkeypatch.setattr(Process, "made", [])
    benches: list[Bench] = []
    with tempfile.TemporaryDirectory(prefix="run-") as folder:

        def make(processes: int = 1) -> Bench:
            benches.append(Bench(Path(folder), processes))
            return benches[-1]

        yield make
    for each in benches:
        for command in each.commands:
            command.close()


def _serve(process: Process) -> None:
    process.serves = True


def test_the_old_one_leaves_when_the_next_one_serves(bench: Callable[..., Bench]) -> None:
    one = bench()

    def starting() -> None:
        assert [each.takes_over for each in one.made] == [False, True]
        assert one.made[0].signals == []
        _serve(one.made[1])

    def leaving() -> None:
        assert one.made[0].signals == [LEAVE]
        assert one.made[0].is_running
        one.made[0].is_running = False

    def left() -> None:
        assert one.answers() == [InService(""), Ended(0)]
        assert one.made[1].is_running

    one.run(one.order, int, starting, int, leaving, int, left)
    assert one.made[1].signals == [signal.SIGTERM]
    # The socket on which orders are taken is gone.
    with pytest.raises(UnavailableError, match="cannot restart it"):
        next(restart_front_ends(order_address(one.base, os.getpid()), 1))


def test_several_are_replaced_one_after_the_other(bench: Callable[..., Bench]) -> None:
    three = bench(3)

    def starting(number: int) -> Callable[[], None]:
        def step() -> None:
            assert len(three.made) == 4 + number
            assert three.made[number].signals == []
            _serve(three.made[3 + number])

        return step

    def end_all() -> None:
        for each in three.made[:3]:
            assert each.signals == [LEAVE]
            each.is_running = False

    steps = [step for number in range(3) for step in (starting(number), int, int)]
    three.run(three.order, int, *steps, end_all, int, int)
    assert three.answers() == [InService(""), Ended(0)]


def test_the_old_one_stays_if_the_next_one_dies(bench: Callable[..., Bench]) -> None:
    one = bench()

    def die() -> None:
        one.made[1].is_running = False

    one.run(one.order, int, die, int, int)
    (answer,) = one.answers()
    assert answer == InService("the new front end was killed: the old one stays")
    assert len(one.made) == 2
    assert one.made[0].signals == [signal.SIGTERM]


def test_the_old_one_stays_if_the_next_one_is_never_ready(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_end_restart, "READY_SECONDS", -1.0)
    two = bench(2)
    two.run(two.order, int, int, int)
    (answer,) = two.answers()
    assert answer == InService("the new front end was not ready after -1 s: the old one stays")
    # The second was not tried.
    assert [each.takes_over for each in two.made] == [False, False, True]
    assert not two.made[2].is_running


def test_of_several_some_may_be_new(bench: Callable[..., Bench]) -> None:
    two = bench(2)

    def first() -> None:
        _serve(two.made[2])

    def second() -> None:
        two.made[3].is_running = False

    two.run(two.order, int, first, int, second, int, int)
    (answer,) = two.answers()
    problem = "the new front end was killed: the old one stays"
    assert answer == InService(f"1 of 2 processes are new; {problem}")


def test_an_old_one_that_dies_is_replaced_as_always(bench: Callable[..., Bench]) -> None:
    one = bench()

    def die() -> None:
        one.made[0].is_running = False

    def look() -> None:
        assert [each.takes_over for each in one.made] == [False, True, False]
        assert [each.is_running for each in one.made] == [False, False, True]

    one.run(one.order, int, die, int, look, int)
    (answer,) = one.answers()
    assert answer == InService("the front end exited meanwhile: it is started again")


def test_an_old_one_that_takes_too_long_is_stopped(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.run(lambda: one.order(-1), int, lambda: _serve(one.made[1]), int, int, int)
    assert one.answers() == [InService(""), Ended(1)]
    assert not one.made[0].is_running


def test_one_restart_at_a_time_but_the_old_ones_may_drain(bench: Callable[..., Bench]) -> None:
    one = bench()

    def third() -> None:
        one.order()

    def end_all() -> None:
        assert one.made[0].signals == one.made[1].signals == [LEAVE]
        one.made[0].is_running = one.made[1].is_running = False

    def first() -> None:
        one.order()
        one.order()

    one.run(
        first,
        int,
        int,
        lambda: _serve(one.made[1]),
        int,
        int,
        third,
        int,
        lambda: _serve(one.made[2]),
        int,
        int,
        end_all,
        int,
        int,
    )
    assert one.answers(0) == [InService(""), Ended(0)]
    refused = "another restart of the front end has begun: wait for its end"
    assert one.answers(1) == [InService(refused)]
    assert one.answers(2) == [InService(""), Ended(0)]


def test_a_command_that_leaves_or_sends_anything_costs_nothing(
    bench: Callable[..., Bench],
) -> None:
    one = bench()

    def strangers() -> None:
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n" * 9, encode([{"type": "x"}])):
            with socket.socket(socket.AF_UNIX) as command:
                command.connect(str(order_address(one.base, os.getpid())))
                command.sendall(data)

    def leave() -> None:
        one.order()
        one.commands[0].close()

    one.run(strangers, int, int, int, int, leave, int, lambda: _serve(one.made[1]), int, int, int)
    assert one.made[0].signals == [LEAVE, signal.SIGTERM]
    assert one.made[1].signals == [signal.SIGTERM]


def test_the_end_of_the_server_ends_all(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.run(one.order, int, lambda: _serve(one.made[1]), int, one.order, int, int)
    assert [each.is_running for each in one.made] == [False] * 3
    assert one.answers(0) == [InService("")]
    assert one.answers(1) == []
