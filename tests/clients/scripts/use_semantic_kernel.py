"""Semantic Kernel's agent, with a function of its plugin."""

import asyncio
import json
from typing import Any

from cities import City
from openai import AsyncOpenAI
from orders import CHOSEN, TEXT, TURNS, weather
from results import KEY, MODEL, URL, run
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
)
from semantic_kernel.functions import KernelArguments, kernel_function

# It names a function after its plugin.
LOOP = f"SAY {json.dumps([TURNS[0].replace('weather', 'W-weather'), *TURNS[1:]])}"


class W:
    """A plugin."""

    @kernel_function(name="weather", description="Return the weather of a city.")
    def weather(self, city: str) -> str:
        """Return it."""
        return weather(city)


def _agent(**more: Any) -> ChatCompletionAgent:
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=client)
    return ChatCompletionAgent(service=service, name="agent", **more)


def _answer(agent: ChatCompletionAgent, text: str) -> Any:
    return str(asyncio.run(agent.get_response(text)).message)


def chat() -> Any:
    return _answer(_agent(), TEXT)


def structured() -> Any:
    settings = OpenAIChatPromptExecutionSettings()
    settings.response_format = City
    return _answer(_agent(arguments=KernelArguments(settings=settings)), CHOSEN)


def tool() -> Any:
    return _answer(_agent(plugins=[W()]), LOOP)


def tool_streamed() -> Any:
    async def texts() -> list[str]:
        pieces = _agent(plugins=[W()]).invoke_stream(LOOP)
        return [str(piece.message) async for piece in pieces]

    return "".join(asyncio.run(texts()))


if __name__ == "__main__":
    run(globals())
