"""`langchain-openai`."""

from typing import Any

from cities import City
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from results import KEY, MODEL, URL, run

QUESTION = "What is the capital of Italy?"
chat = ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model=MODEL, temperature=0)  # type: ignore[arg-type]


@tool
def travel(city: str) -> str:
    """Go to a city."""
    return city


def invoke() -> Any:
    message = chat.invoke(QUESTION)
    return [message.content, message.usage_metadata is not None]


def stream() -> Any:
    return "".join(str(chunk.content) for chunk in chat.stream(QUESTION))


def batch() -> Any:
    return [message.content for message in chat.batch([QUESTION, "What is the capital of Japan?"])]


def tools() -> Any:
    # The arguments of a tool that is not strict are any JSON. This model, which is trained anew on
    # each kind of processor, may write one that is no object, for which `invoke` raises.
    chunks: Any = chat.bind_tools([travel], tool_choice="required").stream(QUESTION)
    return [call["name"] for chunk in chunks for call in chunk.tool_call_chunks if call["name"]]


def structured() -> Any:
    answer: Any = chat.with_structured_output(City, method="json_schema").invoke(QUESTION)
    return answer.city


def completion() -> Any:
    model = OpenAI(base_url=f"{URL}/v1", api_key=KEY, model=MODEL, temperature=0)  # type: ignore[arg-type]
    return model.invoke("The capital of Italy is")


def unknown_model() -> Any:
    return ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, model="none").invoke(QUESTION)  # type: ignore[arg-type]


if __name__ == "__main__":
    run(globals())
