"""Mirascope's calls and their tools, over chats, Responses and Anthropic's messages."""

import os
from typing import Any

from cities import City
from orders import CHOSEN, LOOP, TEXT, weather
from results import KEY, MODEL, URL, run

# It reads them when it is imported.
os.environ |= {
    "OPENAI_API_KEY": KEY,
    "OPENAI_BASE_URL": f"{URL}/v1",
    "ANTHROPIC_API_KEY": KEY,
    "ANTHROPIC_BASE_URL": URL,
}
from mirascope import llm

CHATS, RESPONSES = f"openai/{MODEL}:completions", f"openai/{MODEL}:responses"
MESSAGES = f"anthropic/{MODEL}"
TOOLS = [llm.tool(weather)]


def _looped(name: str) -> Any:
    answer = llm.model(name).call(LOOP, tools=TOOLS)
    while answer.tool_calls:
        answer = answer.resume(answer.execute_tools())
    return answer.text()


def _streamed(name: str) -> Any:
    answer = llm.model(name).stream(LOOP, tools=TOOLS)
    answer.finish()
    while answer.tool_calls:
        answer = answer.resume(answer.execute_tools())
        answer.finish()
    return answer.text()


CASES = {
    "chat": lambda: llm.model(CHATS).call(TEXT).text(),
    "structured": lambda: llm.model(CHATS).call(CHOSEN, format=City).parse().model_dump(),
    "tool": lambda: _looped(CHATS),
    "tool_streamed": lambda: _streamed(CHATS),
    "responses": lambda: _looped(RESPONSES),
    "responses_streamed": lambda: _streamed(RESPONSES),
    "messages": lambda: _looped(MESSAGES),
    "messages_streamed": lambda: _streamed(MESSAGES),
}

if __name__ == "__main__":
    run(globals() | CASES)
