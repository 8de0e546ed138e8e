"""LlamaIndex's `OpenAILike`."""

import asyncio
from typing import Any

from cities import City
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from orders import CHOSEN, LOOP, TEXT, weather_of
from results import KEY, MODEL, URL, run


def _weather(city: str) -> str:
    """Return the weather of a city."""
    return weather_of(city)


def _model(name: str = MODEL, *, is_chat: bool = True, **more: Any) -> OpenAILike:
    return OpenAILike(
        model=name,
        api_base=f"{URL}/v1",
        api_key=KEY,
        is_chat_model=is_chat,
        is_function_calling_model=is_chat,
        context_window=8000,
        max_retries=0,
        **more,
    )


def _agent(*, streaming: bool) -> str:
    async def answer() -> str:
        tools = [FunctionTool.from_defaults(_weather, name="weather")]
        agent = FunctionAgent(tools=tools, llm=_model(), streaming=streaming)
        return str(await agent.run(LOOP))

    return asyncio.run(answer())


def completion() -> Any:
    return str(_model(is_chat=False).complete(TEXT))


def chat() -> Any:
    return _model().chat([ChatMessage(role="user", content=TEXT)]).message.content


def streamed() -> Any:
    parts = _model().stream_chat([ChatMessage(role="user", content=TEXT)])
    return "".join(part.delta or "" for part in parts)


def structured() -> Any:
    model = _model(should_use_structured_outputs=True).as_structured_llm(City)
    return model.complete(CHOSEN).raw.model_dump()


def agent() -> Any:
    return _agent(streaming=False)


def agent_streamed() -> Any:
    return _agent(streaming=True)


def unknown_model() -> Any:
    return _model("none").chat([ChatMessage(role="user", content=TEXT)]).message.content


if __name__ == "__main__":
    run(globals())
