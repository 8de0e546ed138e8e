"""Make prompts of short chats that come together, on the event loop.

vLLM's renderer makes each prompt in two calls of one thread: the template, then the tokens. Of many
chats that come at once, all templates are ahead of the first tokens. So the engine gets no chat
before nearly all are done. The thread and the loop also wait for each other. Here a few chats a
turn are rendered by vLLM's own function without a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.engines.vllm.inside.kinds import Rendering

_log = logging.getLogger(__name__)

Messages = list[dict[str, str]]

MOST_CHARACTERS: Final = 2048
"""Of a chat: its tokens take 1 ms. Those of a longer one take longer than a thread does."""
MOST_MESSAGES: Final = 64
_A_TURN: Final = 16
"""Chats that are rendered before others have their turn."""
_CHARACTERS_A_TURN: Final = 4096
_MOST_SECONDS: Final = 0.02
"""Of CPU that a chat may take: others wait meanwhile. Most take less than 1 ms."""
_ARRIVAL: Final = "arrival_time"
"""Member of a prompt that is no other's."""


class _Waiting(NamedTuple):
    messages: Messages
    rendering: Rendering
    characters: int
    prompt: asyncio.Future[Any]


class ShortChats:
    """Renders short chats of one engine.

    Args:
        renderer: vLLM's.
    """

    def __init__(self, renderer: Any) -> None:
        self._render = getattr(renderer, "render_chat", None)
        if inspect.iscoroutinefunction(self._render):
            self._render = None
        self._waiting: list[_Waiting] = []

    def makes_same(self, messages: Messages, rendering: Rendering) -> bool:
        """Tell whether a chat is rendered here as vLLM's server has it, and soon enough."""
        if self._render is None or _size_of(messages) is None:
            return False
        began = time.thread_time()
        try:
            (ours,), (theirs,) = self._prompts([messages], rendering), rendering.prompts
            is_same = bool(_timeless(ours) == _timeless(theirs))
        except Exception as error:  # noqa: BLE001  vLLM's thread is there
            _log.debug("short chats are rendered by vLLM's thread: %s", error)
            return False
        return is_same and time.thread_time() - began <= _MOST_SECONDS

    async def prompt(self, messages: Messages, rendering: Rendering) -> Any:
        """Return the prompt of a chat; None where it is too long.

        Raises:
            Exception: vLLM's, which refuses the chat.
        """
        characters = _size_of(messages)
        if characters is None:
            return None
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._turn)
        prompt: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(_Waiting(messages, rendering, characters, prompt))
        found = await prompt
        if isinstance(found, Exception):
            raise found
        return found

    def _turn(self) -> None:
        """Render the first chats that wait and are rendered alike."""
        together: list[_Waiting] = []
        rendering, characters = self._waiting[0].rendering, 0
        for each in self._waiting[:_A_TURN]:
            characters += each.characters
            if each.rendering is not rendering or characters > _CHARACTERS_A_TURN:
                break
            together.append(each)
        del self._waiting[: len(together)]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        left = [each for each in together if not each.prompt.done()]
        try:
            prompts = self._prompts([each.messages for each in left], rendering) if left else []
        except Exception:  # noqa: BLE001  perhaps one of them is refused
            prompts = [self._alone(each.messages, rendering) for each in left]
        for each, prompt in zip(left, prompts, strict=True):
            each.prompt.set_result(prompt)

    def _alone(self, messages: Messages, rendering: Rendering) -> Any:
        """Return the prompt of one chat, or the exception that comes instead."""
        try:
            (prompt,) = self._prompts([messages], rendering)
        except Exception as error:  # noqa: BLE001  it is this chat's
            return error
        return prompt

    def _prompts(self, chats: list[Messages], rendering: Rendering) -> list[Any]:
        """Return prompts; raises what vLLM does."""
        _, prompts = self._render(chats, *rendering.given, **rendering.named)  # type: ignore[misc]
        if len(prompts) != len(chats):
            raise ValueError("not a prompt for each chat")
        return list(prompts)


def _size_of(messages: Messages) -> int | None:
    """Return the characters of a chat that is rendered here; None of another one."""
    if len(messages) > MOST_MESSAGES:
        return None
    characters = sum([len(each["content"]) for each in messages])
    return characters if characters <= MOST_CHARACTERS else None


def _timeless(prompt: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in prompt.items() if name != _ARRIVAL}
