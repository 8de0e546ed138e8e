"""`openai-agents`."""

import asyncio
from typing import Any, Literal

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from cities import City
from results import KEY, MODEL, URL, run

QUESTION = "What is the capital of Italy?"
set_tracing_disabled(disabled=True)


# This model fills the arguments of a strict tool with white space. Those of another are any JSON;
# the library tells the model what is wrong with them.
@function_tool(strict_mode=False)
def travel(city: Literal["Rome"]) -> str:
    """Go to a city."""
    return city


def _client(key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=key)


def _agent(model: Any = None, **more: Any) -> Agent[Any]:
    settings = more.pop("model_settings", ModelSettings(temperature=0))
    own = model or OpenAIChatCompletionsModel(MODEL, _client())
    return Agent("guide", model=own, model_settings=settings, **more)


def _answer(model: Any) -> Any:
    return Runner.run_sync(_agent(model), QUESTION).final_output


def streamed() -> Any:
    async def read() -> Any:
        running = Runner.run_streamed(_agent(), QUESTION)
        pieces = [
            event.data.delta
            async for event in running.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]
        return "".join(pieces)

    return asyncio.run(read())


def tool() -> Any:
    required = ModelSettings(temperature=0, tool_choice="required")
    agent = _agent(tools=[travel], model_settings=required, tool_use_behavior="stop_on_first_tool")
    result = Runner.run_sync(agent, QUESTION)
    return [item.raw_item.name for item in result.new_items if item.type == "tool_call_item"]


CASES = {
    "chat": lambda: _answer(None),
    "responses": lambda: _answer(OpenAIResponsesModel(MODEL, _client())),
    "structured": lambda: dict(Runner.run_sync(_agent(output_type=City), QUESTION).final_output),
    "unknown_model": lambda: _answer(OpenAIChatCompletionsModel("none", _client())),
    "wrong_key": lambda: _answer(OpenAIChatCompletionsModel(MODEL, _client("wrong"))),
}

if __name__ == "__main__":
    run(globals() | CASES)
