"""What the front end requests from a model itself: its health, what it buffers, how it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from lmi_backend.errors import UnavailableError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.buffered import Find, Found

if TYPE_CHECKING:
    from collections.abc import Callable

_Reply = TypeVar("_Reply")


class Questions:
    """Questions on one connection, whose answers come in the same order.

    Args:
        send: sends a message; it raises UnavailableError where the model has gone.
    """

    def __init__(self, send: Callable[[msg.FromClient], None]) -> None:
        self._send = send
        self._health: list[asyncio.Future[msg.Health]] = []
        self._states: list[asyncio.Future[msg.State]] = []
        self._found: list[asyncio.Future[Found]] = []

    async def health(self) -> msg.Health:
        """Return whether the model accepts requests.

        Raises:
            UnavailableError: the model has gone.
        """
        return await self._ask(msg.AskHealth(), self._health)

    async def state(self, log_after: int = -1) -> dict[str, Any]:
        """Return all that people look at (`endpoint/state.py`); raises like `health`."""
        return await self._state(msg.AskState(log_after))

    async def brief_state(self) -> dict[str, Any]:
        """Return what changes with each request; raises like `health`."""
        return await self._state(msg.AskState(is_brief=True))

    async def find(self, asked: Find) -> Found:
        """Return what is buffered of a response, if it is; raises like `health`."""
        return await self._ask(asked, self._found)

    def take(self, message: msg.ToClient) -> None:
        """Hand an answer to the first caller that waits for one of its kind, if it still waits."""
        if isinstance(message, msg.Health):
            _answer(self._health, message)
        elif isinstance(message, msg.State):
            _answer(self._states, message)
        elif isinstance(message, Found):
            _answer(self._found, message)

    def fail(self, error: Exception) -> None:
        asked: list[asyncio.Future[Any]] = [*self._health, *self._states, *self._found]
        for waiting in asked:
            if not waiting.done():
                waiting.set_exception(error)

    async def _state(self, message: msg.AskState) -> dict[str, Any]:
        values = (await self._ask(message, self._states)).values
        if not values:
            raise UnavailableError("the model cannot say how it is; its log has the reason")
        return values

    async def _ask(self, message: msg.FromClient, asked: list[asyncio.Future[_Reply]]) -> _Reply:
        self._send(message)
        waiting: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        asked.append(waiting)
        return await waiting


def _answer(asked: list[asyncio.Future[_Reply]], reply: _Reply) -> None:
    if asked and not (waiting := asked.pop(0)).done():
        waiting.set_result(reply)
