"""A restart of the front end without a refused connection, as `restart --front-end` orders it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Final, Protocol

from lmi_backend.errors import ConfigurationError, LmiError, UnavailableError
from lmi_backend.ipc.frames import FrameDecoder, encode
from lmi_backend.printable import say
from lmi_backend.private_folders import private_folder
from lmi_backend.supervisor.front_end_order import (
    MESSAGE_BYTES,
    Ended,
    InService,
    Order,
    order_address,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lmi_backend.supervisor.beating_process import BeatingProcess

LEAVE: Final = signal.SIGUSR2
"""Tells a front end that another one accepts connections: it finishes its requests, and exits."""
READY_SECONDS: Final = 30.0
"""Time that a new front end has to serve; then the old one stays."""
_WAITING: Final = 16


class Renewable(Protocol):
    """A front end that may be restarted."""

    def renew(self, seconds: float) -> FrontEndRenewal:
        """Start the next one; raise UnavailableError where that is not possible."""


class FrontEndRenewal:
    """The change from one process of a front end to the next.

    Args:
        old: serves, until the next one does.
        following: is starting.
        seconds: for the old one to finish its requests.
    """

    def __init__(self, old: BeatingProcess, following: BeatingProcess, seconds: float) -> None:
        self._old, self._following, self._seconds = old, following, seconds
        self._ends_at = time.monotonic() + READY_SECONDS
        self.is_draining = self.is_over = False
        self.problem = ""
        """Why the old one stays; empty if it does not."""
        self.was_cut = False
        """Whether the old one took longer than it had."""

    @property
    def processes(self) -> list[BeatingProcess]:
        """The processes that do not serve: of two, the one that is starting or draining."""
        if self.is_over:
            return []
        return [self._old if self.is_draining else self._following]

    def look(self, serving: BeatingProcess | None) -> BeatingProcess | None:
        """Take the next step; return the process that serves now.

        Args:
            serving: the one that served until now.
        """
        if self.is_draining:
            self._drain()
        elif not self.is_over:
            problem = self._following.problem()
            if serving is not self._old:
                self._fail("the front end exited meanwhile: it is started again")
            elif problem:
                self._fail(f"the new front end {problem}: the old one stays")
            elif self._following.serves:
                self._old.send_signal(LEAVE)
                self.is_draining, self._ends_at = True, time.monotonic() + self._seconds
                say("the front end is new; the old one finishes its requests")
                return self._following
            elif time.monotonic() > self._ends_at:
                seconds = f"{READY_SECONDS:.0f} s"
                self._fail(f"the new front end was not ready after {seconds}: the old one stays")
        return serving

    def abandon(self) -> None:
        """Do nothing more: all processes were stopped."""
        if not (self.is_draining or self.is_over):
            self.problem = "the front end was stopped meanwhile"
        self.is_over = True

    def _fail(self, problem: str) -> None:
        self._following.stop()
        self.problem, self.is_over = problem, True
        say(problem, "WARNING")

    def _drain(self) -> None:
        if self._old.is_running:
            if time.monotonic() < self._ends_at:
                return
            self.was_cut = True
            say(f"the old front end has not exited after {self._seconds:g} s: it is stopped")
        self._old.stop()
        self.is_over = True


class _Asker:
    """A command that waits for the end of a restart."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._decoder: FrameDecoder[Order] = FrameDecoder(Order, limit=MESSAGE_BYTES)

    def order(self) -> Order | None:
        """Return what it wants, once it has sent that.

        Raises:
            LmiError: it has left, or sends something else.
            OSError: its connection is lost.
        """
        try:
            orders = self._decoder.feed(self.connection.recv(MESSAGE_BYTES))
        except BlockingIOError:
            return None
        return orders[0] if orders else None

    def answer(self, message: InService | Ended) -> None:
        """Send it an answer; it may have left."""
        with contextlib.suppress(OSError):
            self.connection.send(encode([message]))


class Restarts:
    """Takes orders on a socket that only this user reaches, and restarts one after the other.

    Args:
        base: folder in which the socket is, in the private one of the models' endpoints.
        front_ends: what is restarted.
    """

    def __init__(self, base: Path, front_ends: Sequence[Renewable]) -> None:
        self._front_ends = front_ends
        self._path = order_address(base, os.getpid())
        self._askers: list[_Asker] = []
        self._running: list[_Restart] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        try:
            private_folder(self._path.parent)
            self._path.unlink(missing_ok=True)
            self._listener.bind(os.fspath(self._path))
            self._listener.listen(_WAITING)
        except (OSError, ConfigurationError) as error:
            say(f"the front end cannot be restarted by command: {error}", "WARNING")
            self.close()

    def close(self) -> None:
        """Take no more orders."""
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for each in (*self._askers, *(each.asker for each in self._running)):
            each.connection.close()

    def look(self) -> None:
        """Take orders, and the next step of each restart."""
        with contextlib.suppress(OSError):
            self._askers.append(_Asker(self._listener.accept()[0]))
        for asker in list(self._askers):
            try:
                order = asker.order()
            except (LmiError, OSError):
                self._dismiss(asker)
                continue
            if order is not None:
                self._askers.remove(asker)
                self._begin(asker, order)
        for each in list(self._running):
            each.look()
            if each.is_over:
                self._running.remove(each)
                each.asker.connection.close()

    def _dismiss(self, asker: _Asker) -> None:
        self._askers.remove(asker)
        asker.connection.close()

    def _begin(self, asker: _Asker, order: Order) -> None:
        if any(not each.is_in_service for each in self._running):
            asker.answer(InService("another restart of the front end has begun: wait for its end"))
            asker.connection.close()
        else:
            say("the front end is restarted")
            self._running.append(_Restart(asker, order.seconds, self._front_ends))


class _Restart:
    """A restart of all processes of the front end, one after the other.

    Args:
        asker: hears of it.
        seconds: that an old process has.
        front_ends: what is restarted.
    """

    def __init__(self, asker: _Asker, seconds: float, front_ends: Sequence[Renewable]) -> None:
        self.asker, self._seconds = asker, seconds
        self._left = list(front_ends)
        self._count = len(self._left)
        self._renewals: list[FrontEndRenewal] = []
        self.is_in_service = self.is_over = False

    def look(self) -> None:
        """Take the next step."""
        if self.is_in_service:
            if all(each.is_over for each in self._renewals):
                self.is_over = True
                self.asker.answer(Ended(sum(each.was_cut for each in self._renewals)))
            return
        last = self._renewals[-1] if self._renewals else None
        if last is not None and last.problem:
            self._fail(last.problem)
        elif last is None or last.is_draining:
            if self._left:
                self._renew(self._left.pop(0))
            else:
                self.is_in_service = True
                self.asker.answer(InService(""))

    def _renew(self, front_end: Renewable) -> None:
        try:
            self._renewals.append(front_end.renew(self._seconds))
        except UnavailableError as error:
            self._fail(str(error))

    def _fail(self, problem: str) -> None:
        done = sum(each.is_draining for each in self._renewals)
        before = f"{done} of {self._count} processes are new; " if done else ""
        self.is_in_service = self.is_over = True
        self.asker.answer(InService(f"{before}{problem}"))
