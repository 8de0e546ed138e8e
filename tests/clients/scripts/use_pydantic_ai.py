"""`pydantic-ai`."""

import asyncio
import contextlib
from typing import Any

from cities import City
from pydantic_ai import Agent, NativeOutput, ToolOutput, capture_run_messages
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from results import KEY, MODEL, URL, run

QUESTION = "What is the capital of Italy?"
GREEDY: Any = {"temperature": 0}


def _provider(key: str = KEY) -> OpenAIProvider:
    return OpenAIProvider(base_url=f"{URL}/v1", api_key=key)


def _model(name: str = MODEL, key: str = KEY) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider=_provider(key))


def _answer(model: Any) -> Any:
    return Agent(model, model_settings=GREEDY).run_sync(QUESTION).output


def streamed() -> Any:
    async def read() -> str:
        async with Agent(_model(), model_settings=GREEDY).run_stream(QUESTION) as answer:
            return "".join([text async for text in answer.stream_text(delta=True)])

    return asyncio.run(read())


def structured() -> Any:
    agent = Agent(_model(), output_type=NativeOutput(City), model_settings=GREEDY)
    return agent.run_sync(QUESTION).output.model_dump()


def tool() -> Any:
    # An output type is a tool that must be called. The arguments of one that is not strict are any
    # JSON, and this model may write such as are no city; it fills a strict one with white space.
    output = ToolOutput(City, name="travel", strict=False, max_retries=0)
    with capture_run_messages() as messages, contextlib.suppress(UnexpectedModelBehavior):
        Agent(_model(), output_type=output, model_settings=GREEDY).run_sync(QUESTION)
    answers = [message for message in messages if isinstance(message, ModelResponse)]
    calls = [part for part in answers[0].parts if isinstance(part, ToolCallPart)]
    return [call.tool_name for call in calls]


CASES = {
    "chat": lambda: _answer(_model()),
    "responses": lambda: _answer(OpenAIResponsesModel(MODEL, provider=_provider())),
    "unknown_model": lambda: _answer(_model("none")),
    "wrong_key": lambda: _answer(_model(key="wrong")),
}

if __name__ == "__main__":
    run(globals() | CASES)
