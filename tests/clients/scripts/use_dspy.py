"""`dspy`, which sends through LiteLLM."""

from typing import Any

import dspy
from results import KEY, MODEL, URL, run

QUESTION = "What is the capital of Italy?"


def _model(**more: Any) -> Any:
    options = {"temperature": 0, "cache": False, "num_retries": 0} | more
    reached = {"api_base": f"{URL}/v1", "api_key": KEY}
    return dspy.LM(f"openai/{MODEL}", **(reached | options))


def completion() -> Any:
    # It adds words of its own to the prompt, after which this model writes something else.
    (answer,) = _model(model_type="text")("The capital of Italy is")
    return bool(answer)


def responses() -> Any:
    (answer,) = _model(model_type="responses")(QUESTION)
    return answer["text"] if isinstance(answer, dict) else answer


CASES = {
    "text": lambda: _model()(QUESTION),
    "messages": lambda: _model()(messages=[{"role": "user", "content": QUESTION}]),
    "wrong_key": lambda: _model(api_key="wrong")(QUESTION),
}

if __name__ == "__main__":
    run(globals() | CASES)
