"""Inspect's evaluations, by its providers `openai-api`, `vllm` and `anthropic`."""

import os
import tempfile
from typing import Any

from orders import LOOP, REPLY, TEXT, weather
from results import KEY, MODEL, URL, run

# It reads them when it is imported.
os.environ |= {
    "LMI_API_KEY": KEY,
    "LMI_BASE_URL": f"{URL}/v1",
    "VLLM_API_KEY": KEY,
    "VLLM_BASE_URL": f"{URL}/v1",
    "ANTHROPIC_API_KEY": KEY,
    "ANTHROPIC_BASE_URL": URL,
    "INSPECT_LOG_DIR": tempfile.mkdtemp(),
}
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool as as_tool

OPENAI = f"openai-api/lmi/{MODEL}"


@as_tool(name="weather")
def _weather() -> Any:
    async def execute(city: str) -> str:
        """Return the weather of a city.

        Args:
            city: its name.
        """
        return weather(city)

    return execute


def _right(model: str, text: str, target: str, **more: Any) -> Any:
    """Return the share of right answers."""
    solver = [use_tools(_weather()), generate()] if text == LOOP else [generate()]
    task = Task(dataset=[Sample(input=text, target=target)], solver=solver, scorer=includes())
    config = GenerateConfig(max_tokens=200, max_retries=0)
    (log,) = evaluate(task, model=get_model(model, config=config, **more), display="none")
    assert log.status == "success", log.error and log.error.message[-600:]
    assert log.results
    return log.results.scores[0].metrics["accuracy"].value


CASES = {
    "chat": lambda: _right(OPENAI, TEXT, REPLY),
    "vllm": lambda: _right(f"vllm/{MODEL}", TEXT, REPLY),
    "tool": lambda: _right(OPENAI, LOOP, "sunny"),
    "tool_streamed": lambda: _right(OPENAI, LOOP, "sunny", stream=True),
    "tool_vllm": lambda: _right(f"vllm/{MODEL}", LOOP, "sunny"),
    "responses": lambda: _right(OPENAI, LOOP, "sunny", responses_api=True),
    "messages": lambda: _right(f"anthropic/{MODEL}", LOOP, "sunny"),
}

if __name__ == "__main__":
    run(globals() | CASES)
