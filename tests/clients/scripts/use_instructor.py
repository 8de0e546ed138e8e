"""`instructor`."""

import contextlib
from typing import Any

import instructor
import openai
from cities import City
from results import KEY, MODEL, URL, run

CHAT: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)


def _asked(mode: instructor.Mode, **more: Any) -> Any:
    patched = instructor.from_openai(client, mode=mode)
    body: Any = {"model": MODEL, "temperature": 0, "max_retries": 0} | more
    return patched.chat.completions.create(messages=CHAT, response_model=City, **body)


def json_schema() -> Any:
    return _asked(instructor.Mode.JSON_SCHEMA).model_dump()


def tool() -> Any:
    # The arguments of a tool that is not strict are any JSON; this model may write no object.
    patched = instructor.from_openai(client, mode=instructor.Mode.TOOLS)
    answers: list[Any] = []
    patched.on("completion:response", answers.append)
    with contextlib.suppress(Exception):
        patched.chat.completions.create(
            model=MODEL, messages=CHAT, response_model=City, temperature=0, max_retries=0
        )
    calls = answers[0].choices[0].message.tool_calls
    return [call.function.name for call in calls]


def partial() -> Any:
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    pieces = patched.chat.completions.create_partial(
        model=MODEL, messages=CHAT, temperature=0, response_model=City
    )
    return list(pieces)[-1].model_dump()


def unknown_model() -> Any:
    return _asked(instructor.Mode.JSON_SCHEMA, model="none").model_dump()


if __name__ == "__main__":
    run(globals())
