"""Agno's agents, over chats, Responses and Anthropic's messages."""

from typing import Any

from agno.agent import Agent
from agno.models.anthropic import Claude
from agno.models.openai import OpenAIResponses
from agno.models.openai.like import OpenAILike
from agno.models.vllm import VLLM
from agno.tools import tool
from cities import City
from orders import CHOSEN, LOOP, TEXT, weather
from results import KEY, MODEL, URL, run

WEATHER = tool(name="weather")(weather)
OPENAI = {"id": MODEL, "base_url": f"{URL}/v1", "api_key": KEY}


def _claude() -> Claude:
    return Claude(id=MODEL, api_key=KEY, client_params={"base_url": URL}, max_tokens=200)


def _agent(model: Any, **more: Any) -> Agent:
    return Agent(model=model, telemetry=False, **more)


def _looped(model: Any) -> Any:
    return _agent(model, tools=[WEATHER]).run(LOOP).content


def _streamed(model: Any) -> Any:
    events = _agent(model, tools=[WEATHER]).run(LOOP, stream=True)
    texts = (getattr(event, "content", None) for event in events)
    return "".join(text for text in texts if isinstance(text, str))


CASES = {
    "chat": lambda: _agent(OpenAILike(**OPENAI)).run(TEXT).content,
    "agent": lambda: _looped(OpenAILike(**OPENAI)),
    "agent_streamed": lambda: _streamed(OpenAILike(**OPENAI)),
    "structured": lambda: dict(_agent(VLLM(**OPENAI), output_schema=City).run(CHOSEN).content),
    "responses": lambda: _looped(OpenAIResponses(**OPENAI)),
    "responses_streamed": lambda: _streamed(OpenAIResponses(**OPENAI)),
    "messages": lambda: _looped(_claude()),
    "messages_streamed": lambda: _streamed(_claude()),
    "messages_structured": lambda: dict(_agent(_claude(), output_schema=City).run(CHOSEN).content),
}

if __name__ == "__main__":
    run(globals() | CASES)
