"""Haystack's generators and its agent, over chats, Responses and Anthropic's messages."""

import os
from typing import Any

from cities import City
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator
from orders import CHOSEN, LOOP, TEXT, weather
from results import KEY, MODEL, URL, run

os.environ["ANTHROPIC_BASE_URL"] = URL


def _generator(made: Any = OpenAIChatGenerator, **more: Any) -> Any:
    key = Secret.from_token(KEY)
    return made(api_key=key, model=MODEL, api_base_url=f"{URL}/v1", **more)


def _looped(generator: Any, *, streams: bool) -> Any:
    pieces: list[Any] = []
    callback = pieces.append if streams else None
    agent = Agent(chat_generator=generator, tools=[tool(weather)], streaming_callback=callback)
    last = agent.run([ChatMessage.from_user(LOOP)])["messages"][-1].text
    return [last, bool(pieces) is streams]


def structured() -> Any:
    generator = _generator(generation_kwargs={"response_format": City})
    return generator.run([ChatMessage.from_user(CHOSEN)])["replies"][0].text


def agent() -> Any:
    return _looped(_generator(), streams=False)


CASES = {
    "chat": lambda: _generator().run([ChatMessage.from_user(TEXT)])["replies"][0].text,
    "agent_streamed": lambda: _looped(_generator(), streams=True),
    "responses": lambda: _looped(_generator(OpenAIResponsesChatGenerator), streams=False),
    "responses_streamed": lambda: _looped(_generator(OpenAIResponsesChatGenerator), streams=True),
    "messages": lambda: _looped(
        AnthropicChatGenerator(Secret.from_token(KEY), MODEL), streams=False
    ),
    "messages_streamed": lambda: _looped(
        AnthropicChatGenerator(Secret.from_token(KEY), MODEL), streams=True
    ),
}

if __name__ == "__main__":
    run(globals() | CASES)
