"""LlamaIndex's `OpenAILike`."""

import asyncio
from typing import Any

from cities import City
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from orders import CHOSEN, LOOP, TEXT, weather
from results import KEY, MODEL, URL, run


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
        tools = [FunctionTool.from_defaults(weather)]
        agent = FunctionAgent(tools=tools, llm=_model(), streaming=streaming)
        return str(await agent.run(LOOP))

    return asyncio.run(answer())


def _chat(model: OpenAILike) -> Any:
    return model.chat([ChatMessage(role="user", content=TEXT)]).message.content


def streamed() -> Any:
    parts = _model().stream_chat([ChatMessage(role="user", content=TEXT)])
    return "".join(part.delta or "" for part in parts)


def structured() -> Any:
    model = _model(should_use_structured_outputs=True).as_structured_llm(City)
    return model.complete(CHOSEN).raw.model_dump()


def agent() -> Any:
    return _agent(streaming=False)


CASES = {
    "completion": lambda: str(_model(is_chat=False).complete(TEXT)),
    "chat": lambda: _chat(_model()),
    "agent_streamed": lambda: _agent(streaming=True),
    "unknown_model": lambda: _chat(_model("none")),
}

if __name__ == "__main__":
    run(globals() | CASES)
